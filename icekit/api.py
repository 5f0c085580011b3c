"""The public interface: a connected catalog whose methods each call one function of the package."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icekit.common.sql import Identifier
from icekit.engine import lake as catalog
from icekit.health import TableFacts, observe
from icekit.health.diagnose import diagnose
from icekit.health.diagnose.findings import Findings, Thresholds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from icekit.engine.packing import Packed, Unpacked
    from icekit.maintain.model import Plan
    from icekit.maintain.outcome import Outcome
    from icekit.maintain.proposals import Proposals
    from icekit.show.card import Look
    from icekit.show.compare import ComparedStates
    from icekit.tune.answer import Answer


class Lake(catalog.Lake):
    """A catalog (:class:`icekit.engine.lake.Lake`), with methods to observe, plan, change and tune
    its tables.
    """

    def observe(self, table: str | Identifier, **options: Any) -> TableFacts:
        """Collect a table's facts; the options are those of :func:`icekit.health.observe`."""
        return observe(self, table, **options)

    def look(
        self,
        table: str | Identifier,
        *,
        thresholds: Mapping[str, float] | None = None,
        **options: Any,
    ) -> Look:
        """A table's health as its card, which can be written as HTML or JSON; the options are those
        of :meth:`observe`.
        """
        from icekit.show.card import Look

        changed_thresholds = Thresholds().with_changes(**thresholds or {})
        facts = self.observe(table, size_ratios=changed_thresholds.size_ratios, **options)
        return Look(
            facts,
            diagnose(facts, changed_thresholds, session_conf=self.session_conf()),
            changed_thresholds,
        )

    def plan(
        self,
        facts: TableFacts,
        findings: Findings | None = None,
        *,
        trial: bool = False,
        ledger: str | None = None,
        **policy: Any,
    ) -> Plan:
        """Plan only the rewrites that are worth it; ``policy`` is as in
        :meth:`icekit.maintain.policy.Policy.of`. Runs nothing.
        """
        from icekit.maintain.policy import Policy
        from icekit.maintain.service import plan_table

        return plan_table(self, facts, findings, Policy.of(policy), trial=trial, ledger=ledger)

    def propose(
        self,
        table: str | Identifier,
        *,
        thresholds: Mapping[str, float] | None = None,
        **options: Any,
    ) -> Proposals:
        """List everything worth doing on a table, with the commands; only reads metadata. The
        options are those of :func:`icekit.maintain.proposals.propose`.
        """
        from icekit.maintain.proposals import propose

        changed_thresholds = Thresholds().with_changes(**thresholds or {})
        facts = self.observe(table, size_ratios=changed_thresholds.size_ratios)
        return propose(self, facts, thresholds=changed_thresholds, **options)

    def run(self, plan: Plan, *, execute: bool = False, **options: Any) -> Outcome:
        """Run a plan, safe to interrupt, and check that no row changed; a dry run unless
        ``execute``. See :func:`icekit.maintain.run.verbs.run`.
        """
        from icekit.maintain.run.verbs import run

        return run(self, plan, execute=execute, **options)

    def convert(
        self,
        table: str | Identifier,
        where: str | None = None,
        *,
        execute: bool = False,
        **options: Any,
    ) -> Outcome:
        """Turn equality deletes into position deletes and check that no row changed; a dry run
        unless ``execute``.

        See :func:`icekit.maintain.run.verbs.convert_equality_deletes`.
        """
        from icekit.maintain.run.verbs import convert_equality_deletes

        return convert_equality_deletes(self, table, where, execute=execute, **options)

    def review_merge(self, sql: str, **options: Any) -> Answer:
        """Explain a MERGE without running it, and propose a narrower ON. See
        :func:`icekit.tune.merge.review_merge`.
        """
        from icekit.tune.merge import review_merge

        return review_merge(self, sql, **options)

    def tune(self, question: str, table: str | Identifier, **options: Any) -> Answer:
        """Measure how a table should be written or laid out; only reads the table.

        ``question`` is file-sizes, metrics-columns, layout, write-mode or planning. See
        :func:`icekit.tune.tune`.
        """
        from icekit.tune import tune

        return tune(self, question, table, **options)

    def read_resolved(self, table: str | Identifier) -> DataFrame:
        """The current rows of a table with too many equality deletes for Spark; the table does not
        change.

        icekit resolves the deletes once, on a zero-copy clone; each query of the frame is then a
        plain scan. :meth:`close` (or the end of the process) removes the clone and its files.
        Raises :class:`~icekit.common.errors.CloneRefused` and
        :class:`~icekit.common.errors.ConversionRefused`.
        """
        from icekit.deletes.resolved import resolved

        return self.until_closed.enter_context(resolved(self, self.identifier(table)))

    def resume(self, table: str | Identifier, **options: Any) -> Outcome:
        """Continue the last unfinished run on a table. See
        :func:`icekit.maintain.run.verbs.resume`.
        """
        from icekit.maintain.run.verbs import resume

        return resume(self, table, **options)

    def pack(self, table: str | Identifier, file: str | Path, **options: Any) -> Packed:
        """Write a table into a file that :meth:`unpack` reads: without its data, unless ``data``.
        See :func:`icekit.engine.packing.pack`.
        """
        from icekit.engine.packing import pack

        return pack(self, table, Path(file), **options)

    def unpack(self, file: str | Path, name: str | Identifier = "") -> tuple[Unpacked, ...]:
        """Put the tables of such a file into the embedded lake, a single one under a name. See
        :func:`icekit.engine.packing.unpack`.
        """
        from icekit.engine.packing import unpack

        return unpack(self, Path(file), name)


def compare(before: Any, after: Any, **options: Any) -> ComparedStates:
    """Say what got better and worse between two states of a table, or two JSON reports. See
    :func:`icekit.show.compare.compare`.
    """
    from icekit.show.compare import compare

    return compare(before, after, **options)


def connect(catalog: str | None = None, *, spark: SparkSession | None = None) -> Lake:
    """Connect to a catalog by name; contacts nothing and starts no JVM yet.

    Without a name, with an empty one, or with the name ``lake``, it is the embedded lake: a JDBC
    catalog on SQLite under ``ICEKIT_LAKE`` or ``./lake``. Any other name is a catalog of the given
    (or running) Spark session if it has one with that name, or else a profile in pyiceberg's
    configuration (``.pyiceberg.yaml``, ``PYICEBERG_CATALOG__<NAME>__<KEY>``). Raises
    :class:`~icekit.common.errors.ProfileError` for a name that is neither.
    """
    return Lake.connect(catalog, spark=spark)
