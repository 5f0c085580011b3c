"""Hold findings (what is wrong with a table, the evidence, the fix), and the context that each
check gets.
"""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import IntEnum
from functools import cached_property
from types import MappingProxyType
from typing import Any

from icekit.common import frozen, html, sql
from icekit.common.command_line import command_line
from icekit.common.errors import ParameterError, require_known
from icekit.common.secrets import mask
from icekit.common.units import capitalized, count, first_names
from icekit.common.view import Badge, Block, Folded, Item, Sentence, Sql, as_html, card_html
from icekit.engine.cluster import Executor
from icekit.health.facts.files import FileGroup
from icekit.health.facts.heap import HeapForecast, forecast_heap
from icekit.health.facts.model import TableFacts
from icekit.health.facts.rollup import (
    MAX_SIZE_RATIO,
    MIN_SIZE_RATIO,
    ROWS_PER_LOOK,
    max_file_size,
    min_file_size,
)
from icekit.iceberg.partition import Partition
from icekit.iceberg.where import WITHOUT_FUNCTIONS


class Severity(IntEnum):
    """Ordered, so that reports can sort and gates can compare; written in lower case."""

    INFO = 1
    WARNING = 2
    CRITICAL = 3

    def __str__(self) -> str:
        return self.name.lower()

    def fails(self, fail_on: str) -> bool:
        """Whether something of this severity fails where ``fail_on`` does."""
        return fail_on != "never" and self >= Severity[fail_on.upper()]


@dataclass(frozen=True, slots=True, repr=False)
class Finding:
    """A problem of a table, with the number behind it.

    ``where`` names partitions or columns, worst first, at most ten of ``where_count``. ``figure``
    follows the title where there is room for a few words, ``evidence`` is the whole sentence.
    ``threshold`` is the limit, ``source`` where the limit comes from. ``effect`` says in plain
    words what the problem costs, ``remedy`` what to do; ``command`` is what icekit runs for it, on
    a clone or as a dry run first (None: nothing, or not now), and ``sql`` has statements ready to
    paste, in order.
    """

    name: str
    severity: Severity
    table: str
    where: tuple[str, ...]
    where_count: int
    figure: str
    evidence: str
    threshold: str
    source: str
    effect: str
    remedy: str
    sql: tuple[str, ...] = ()
    command: str | None = None

    @property
    def title(self) -> str:
        """The name as a person reads it."""
        return self.name.replace("_", " ")

    def __repr__(self) -> str:
        return f"{self.severity!s:<8} {self.name}: {self.evidence}"

    def _repr_html_(self) -> str:
        return as_html(_blocks(self))


#: Findings that one action fixes, in the order of their actions: each also does what the later
#: ones do. A rewrite of files with deletes combines small files as well, because
#: ``rewrite_data_files`` applies all of its rules.
_FINDINGS_OF_ACTIONS = (
    (
        "equality_deletes",
        "deletes_default_rewrite_ignores",
        "position_deletes",
        "deletion_vectors",
        "small_files",
        "oversized_files",
    ),
    ("fragmented_manifests", "overlapping_manifests"),
    ("old_snapshots", "snapshots_piling_up"),
)
#: Findings that ``icekit compact`` fixes.
COMPACTED = frozenset((*_FINDINGS_OF_ACTIONS[0], "dangling_deletes", "replaced_deletes"))
#: Findings that an expiry of snapshots fixes.
EXPIRED = ("old_snapshots", "snapshots_piling_up")
#: Findings that ``icekit maintain`` fixes, with the procedure.
MAINTAINED = {
    "position_deletes": "rewrite_position_delete_files",
    "v2_position_deletes": "rewrite_position_delete_files",
    "fragmented_manifests": "rewrite_manifests",
    "overlapping_manifests": "rewrite_manifests",
    **dict.fromkeys(EXPIRED, "expire_snapshots"),
}


def command_for(facts: TableFacts, finding_name: str) -> str | None:
    """The command that fixes a finding, tried on a clone or as a dry run; None if none does, or not
    on this table. Facts of a branch, a tag or the past have the command that plans for the table as
    it is now.
    """
    if facts.contradictions or facts.has_unreadable_columns:
        return None
    if facts.ref is not None:
        has_command = finding_name in COMPACTED or finding_name in MAINTAINED
        return command_line("plan", facts.catalog, facts.name) if has_command else None
    if finding_name == "misread_equality_deletes":
        # A trial would compare what Spark's own reader shows.
        return command_line("compact", facts.catalog, facts.name)
    if finding_name in COMPACTED or finding_name == "old_partition_spec":
        if facts.unsupported_columns:
            return None
        spec_options = [] if finding_name in COMPACTED else ["--old-specs"]
        return command_line("compact", facts.catalog, facts.name, *spec_options, "--trial")
    if finding_name in EXPIRED and facts.history.expirable_count == 0:
        return None
    return (
        command_line("maintain", facts.catalog, facts.name) if finding_name in MAINTAINED else None
    )


@frozen
class Thresholds:
    """Every limit that findings use, in one place; :meth:`with_changes` sets some by name.

    Ratios are shares (0.75), not percentages. Where Iceberg has a rule, the default is that
    rule; the others are choices, and findings say so.
    """

    #: rewrite_data_files: a data file under this share of the target is undersized.
    min_file_size_ratio: float = MIN_SIZE_RATIO
    #: rewrite_data_files: a data file over this share of the target is oversized.
    max_file_size_ratio: float = MAX_SIZE_RATIO
    #: rewrite_data_files: the fewest files that a group needs (min-input-files).
    min_input_files: int = 5
    #: A choice: small files are critical when a rewrite removes this share of all data files.
    critical_share: float = 0.5
    #: A choice: and only when it removes at least this many files.
    critical_files: int = 100
    #: A choice: bytes of the largest partition divided by the median.
    skew_ratio: float = 10.0
    #: A choice: with fewer partitions, skew means nothing.
    skew_min_partitions: int = 5
    #: A choice: with fewer partitions, their size does not matter.
    many_partitions: int = 20
    #: A choice: a partition with less than this share of one target file is too small.
    thin_partition_share: float = 0.25
    #: A choice: a target file size below this share of a read split is too small.
    small_target_share: float = 0.25
    #: A choice: delete records as a share of the data records of the table or a partition.
    delete_ratio: float = 0.05
    #: rewrite_data_files, delete-ratio-threshold: critical from here on.
    critical_delete_ratio: float = 0.3
    #: The default of commit.manifest.min-count-to-merge: merging on commit would have started here.
    fragmented_manifests: int = 100
    #: A choice: with fewer manifests, overlap means nothing.
    overlap_min_manifests: int = 10
    #: A choice: mean share of the other manifests that a manifest overlaps.
    overlap_share: float = 0.5
    #: A choice: snapshots in the metadata.
    snapshots: int = 100
    #: A choice: bytes that only older snapshots hold, as a share of the storage.
    old_snapshots_share: float = 0.25
    #: The default of write.metadata.previous-versions-max: a full log drops its oldest entries.
    metadata_log: int = 100
    #: A choice: records added and deleted since statistics were computed, as a share of the
    #: records at that time.
    stale_statistics: float = 0.2
    #: A choice: files per changed partition and commit, beyond what any distribution explains.
    files_per_partition_per_commit: float = 2.0
    #: A choice: recent commits that show how writers work now.
    recent_commits: int = 20
    #: A choice: columns with statistics in every data file's manifest entry.
    metrics_columns: int = 64
    #: A choice: sampled files needed to judge a column's bounds; as many as make small files worth
    #: a rewrite.
    min_sampled_files: int = 5
    #: A choice: share of sampled files that a point lookup must read.
    stab_share: float = 0.5
    #: A choice: share of the bytes of sampled data files that are no columns.
    bytes_outside_columns: float = 0.5
    #: A choice: leaf columns from which on the size of a column in a row group matters.
    wide_columns: int = 100
    #: A choice: bytes of manifests as a share of the bytes of data.
    manifest_share: float = 0.1
    #: A choice: bytes of the metadata file.
    metadata_bytes: int = 8 * 2**20
    #: A choice: seconds between the commits of a stream.
    commit_seconds: int = 60
    #: A choice: share of a commit's deletion vectors that replace earlier ones.
    vectors_rewritten: float = 0.5

    @property
    def size_ratios(self) -> tuple[float, float]:
        """The shares of the target at which :func:`icekit.health.observe` must cut sizes."""
        return self.min_file_size_ratio, self.max_file_size_ratio

    def with_changes(self, **changes: Any) -> Thresholds:
        """A copy with some limits changed; raises ParameterError for an unknown name or a value of
        another type.
        """
        types_by_threshold = {f.name: type(getattr(self, f.name)) for f in fields(self)}
        new_values: dict[str, Any] = {}
        for threshold_name, value in changes.items():
            require_known(threshold_name, types_by_threshold, "threshold")
            threshold_type = types_by_threshold[threshold_name]
            is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not is_number or not 0 <= value < math.inf or value != threshold_type(value):
                type_text = "whole number" if threshold_type is int else "number"
                raise ParameterError(
                    f"Threshold {threshold_name} must be a {type_text} of 0 or more, not {value!r}."
                )
            new_values[threshold_name] = threshold_type(value)
        new_thresholds = replace(self, **new_values)
        if not new_thresholds.min_file_size_ratio <= 1 < new_thresholds.max_file_size_ratio:
            raise ParameterError(
                "min_file_size_ratio must be 1 or less and max_file_size_ratio more than 1: they "
                "are limits around the target."
            )
        return new_thresholds


class Findings(tuple[Finding, ...]):
    """Findings, most serious first; displays as cards, or says that there is nothing to do."""

    __slots__ = ()

    @property
    def worst(self) -> Severity | None:
        """The highest severity, None without findings."""
        return max((f.severity for f in self), default=None)

    @property
    def status(self) -> str:
        """``healthy``, or the highest severity in lower case."""
        return str(self.worst or "healthy")

    @property
    def names(self) -> frozenset[str]:
        """The names of all findings."""
        return frozenset(f.name for f in self)

    def __repr__(self) -> str:
        return "\n".join(map(repr, self)) or NOTHING

    def _repr_html_(self) -> str:
        return findings_html(self)


def covering_findings(finding_names: Iterable[str]) -> dict[str, str]:
    """The findings that the action of another one of these findings also fixes, each with the name
    of that one.
    """
    present_names = set(finding_names)
    finding_groups = [
        [name for name in group if name in present_names] for group in _FINDINGS_OF_ACTIONS
    ]
    return {name: group[0] for group in finding_groups for name in group[1:]}


NOTHING = "Nothing to do: no finding at these thresholds."

#: Shapes that differ without colour, in every font that has text symbols.
SYMBOLS = {Severity.CRITICAL: "✖", Severity.WARNING: "▲", Severity.INFO: "●"}


#: The number of cards that are not folded.
UNFOLDED_CARDS = 3


def findings_html(
    findings: Sequence[Finding], savings: Mapping[str, str] = MappingProxyType({})
) -> str:
    """The verdict and a card for each finding, in the given order, or a sentence that there is
    none.

    ``savings`` has the saving of a remedy by the finding's name, and of all remedies together under
    an empty name.
    """
    if not findings:
        return as_html([Badge("fine", "✔ healthy", NOTHING)])
    covering_by_name = covering_findings(f.name for f in findings)
    cards_html = [
        card_html(
            _blocks(finding, savings.get(finding.name, ""), covering_by_name.get(finding.name))
        )
        for finding in findings
    ]
    more_findings_text = count(len(cards_html) - UNFOLDED_CARDS, "more finding")
    folded_cards_html = "".join(cards_html[UNFOLDED_CARDS:])
    folded_html = f"<details><summary>{more_findings_text}</summary>{folded_cards_html}</details>"
    verdict_html = f"<p><strong>{html.escaped_text(summary(findings))}.</strong> {html.escaped_sentence(savings.get('', ''))}</p>"
    more_html = folded_html if len(cards_html) > UNFOLDED_CARDS else ""
    return mask(html.framed(verdict_html, *cards_html[:UNFOLDED_CARDS], more_html))


_PLURALS = {Severity.WARNING: "warnings"}


def summary(findings: Sequence[Finding]) -> str:
    """``3 findings: 1 critical, 2 warnings``."""
    if not findings:
        return NOTHING
    counts_by_severity = Counter(f.severity for f in findings)
    severities_text = ", ".join(
        count(counts_by_severity[severity], str(severity), _PLURALS.get(severity, str(severity)))
        for severity in sorted(counts_by_severity, reverse=True)
    )
    return f"{count(len(findings), 'finding')}: {severities_text}"


#: Of a command that tries, or only plans.
NOT_YET = "This changes nothing yet. To run it, add --execute."
#: What Spark's own statement leaves out, beside the command.
SPARKS_OWN = "Spark's own SQL: no trial, no check of rows, no resume"


def _blocks(
    finding: Finding, saving_text: str = "", covering_name: str | None = None
) -> list[Block]:
    """A finding's evidence, remedy and command; where, why and at which threshold are folded.

    ``covering_name`` is a finding whose action also fixes this one: the command stands there.
    """
    fix_blocks: list[Block] = [Sql("", finding.sql)]
    if covering_name is not None:
        fix_blocks = [
            Sentence(f"The fix is the same as that of {covering_name.replace('_', ' ')}.")
        ]
    elif finding.command is not None:
        is_plan_command = finding.command.startswith("icekit plan ")
        note_block = Sentence("" if is_plan_command else NOT_YET)
        fix_blocks = [Sql("", [finding.command]), note_block, Folded(SPARKS_OWN, fix_blocks)]
    unlisted_count = finding.where_count - len(finding.where)
    where_text = ", ".join(finding.where) + (
        f" and {unlisted_count:,} more" if unlisted_count > 0 else ""
    )
    return [
        Badge(
            str(finding.severity), f"{SYMBOLS[finding.severity]} {finding.severity}", finding.title
        ),
        Sentence(f"{capitalized(finding.evidence.rstrip('.'))}."),
        Sentence(finding.remedy),
        Sentence(saving_text, is_strong=True),
        *fix_blocks,
        Folded(
            "Where, and why it matters",
            [
                Item(
                    pairs=[
                        *([("Where", where_text)] if where_text else []),
                        ("Effect", finding.effect),
                        ("Threshold", f"{finding.threshold} ({finding.source})"),
                    ]
                )
            ],
        ),
    ]


WHERE_LIMIT = 10
#: The writers that a sentence names.
NAMED_WRITERS = 5
#: The branches and tags that a sentence names.
NAMED_REFS = 3
#: A time before every snapshot: an expiry up to it removes none by age.
LONG_AGO = dt.datetime.fromtimestamp(0, dt.UTC)

CHOICE = "icekit default; change it with a threshold"

#: A choice: the executor that is assumed if the session is not known.
USUAL_EXECUTOR = Executor(4, 8 * 2**30)


@dataclass(frozen=True)
class Context:
    """One table's facts, the limits, and the reading session's settings where known."""

    facts: TableFacts
    thresholds: Thresholds
    session_conf: Mapping[str, str] | None = None

    @property
    def min_file_size(self) -> int:
        """Data files under this size are undersized, in bytes."""
        return min_file_size(self.facts.target_bytes, self.thresholds.min_file_size_ratio)

    @cached_property
    def heap(self) -> HeapForecast:
        """The heap that Spark's own rewrite needs to apply equality deletes, in an executor of the
        reading session, or in a typical one if the session is not known.
        """
        executor = USUAL_EXECUTOR
        if self.session_conf is not None:
            executor = Executor.of_settings(self.session_conf)
        return forecast_heap(self.facts, executor)

    @property
    def max_file_size(self) -> int:
        """Data files over this size are oversized, in bytes."""
        return max_file_size(self.facts.target_bytes, self.thresholds.max_file_size_ratio)

    @property
    def table_sql(self) -> str:
        """The table's name as SQL."""
        return sql.identifier(*self.facts.sql_name)

    def finding(
        self,
        where: Sequence[str] = (),
        *,
        severity: Severity = Severity.WARNING,
        source: str = CHOICE,
        **fields: Any,
    ) -> Finding:
        """A finding about this table, named after its check; ``where`` is cut to the worst ten."""
        worst_places = tuple(where[:WHERE_LIMIT])
        return Finding(
            "", severity, self.facts.name, worst_places, len(where), source=source, **fields
        )

    def partition_names(self, partitions: Iterable[Partition]) -> list[str]:
        """Partitions as people read them; the single partition of an unpartitioned table has no
        name.
        """
        return [self.facts.partition_name(p) for p in partitions]

    def whole_file_condition(self, partitions: Sequence[Partition]) -> str | None:
        """A condition for the rows of these partitions, which a DELETE or an overwrite matches with
        whole files; None without partitions, where their fields need a function, as buckets do, and
        where it would be wider.
        """
        partition_fields = [
            partition_field
            for partition in partitions
            for partition_field in self.facts.spec(partition.spec_id).active_fields
        ]
        is_exact = all(
            partition_field.source and partition_field.transform in WITHOUT_FUNCTIONS
            for partition_field in partition_fields
        )
        if not partitions or not is_exact:
            return None
        return self.facts.where(partitions, is_for_query=True)

    def command(self, verb: str, *options: str) -> str:
        """A command line of icekit for this table."""
        return command_line(verb, self.facts.catalog, self.facts.name, *options)

    def call_statement(self, procedure: str, **arguments: Any) -> str:
        """A CALL on this table."""
        return sql.call_sql(self.facts.catalog, procedure, table=self.facts.name, **arguments)

    def expire_statement(self, snapshot_ids: Sequence[int]) -> str:
        """The CALL that removes these snapshots, and else only what :attr:`always_removed_sentence`
        names: unless it states a time, the procedure also removes all that are older than the
        table's limit.
        """
        return self.call_statement(
            "expire_snapshots", older_than=LONG_AGO, snapshot_ids=tuple(snapshot_ids)
        )

    @property
    def always_removed_sentence(self) -> str:
        """What every expiry removes, whatever it names, as a sentence; empty if nothing."""
        history = self.facts.history
        removal_texts = []
        if history.refs_past_limits:
            ref_names_text = first_names(history.refs_past_limits, NAMED_REFS)
            refs_text = count(len(history.refs_past_limits), "branch or tag", "branches and tags")
            removal_texts.append(f"{refs_text} ({ref_names_text})")
        if history.past_limits:
            removal_texts.append(count(history.past_limits, "snapshot"))
        if not removal_texts:
            return ""
        return (
            f" Every expiry also removes {' and '.join(removal_texts)} past age limits of branches "
            "and tags themselves (max-ref-age-ms, max-snapshot-age-ms)."
        )

    @property
    def writer_state_sentence(self) -> str:
        """What else a person loses who removes snapshots by name, as a sentence; empty without
        writers that keep state in snapshots.
        """
        writer_texts = dict.fromkeys(
            writer_state.text for writer_state in self.facts.history.writers
        )
        if not writer_texts:
            return ""
        return (
            " A writer that is restarted walks back through the snapshots to its state, and no "
            "longer finds it if one of these lies between "
            f"({first_names(writer_texts, NAMED_WRITERS)})."
        )

    def rewrite_statements(
        self, options: Mapping[str, str] | None = None, **arguments: Any
    ) -> tuple[str, ...]:
        """The CALL of ``rewrite_data_files`` on this table: with partial progress, the limits that
        differ from the defaults, and these options. Empty if it would load equality deletes that
        do not fit into its memory, or misread them, and if the engine cannot read or write the
        columns.

        For a table with :attr:`~icekit.health.facts.model.TableFacts.dropped_fields_under_deletes`,
        of all its files in one commit.
        """
        is_unsafe = self.facts.unsupported_columns or self.facts.misread_keys
        if self.heap.verdict != "fits" or is_unsafe:
            return ()
        if self.facts.dropped_fields_under_deletes:
            whole_table_options = {"rewrite-all": "true", "remove-dangling-deletes": "true"}
            return (self.call_statement("rewrite_data_files", options=whole_table_options),)
        changed_options = threshold_options(self.thresholds, self.facts.target_bytes)
        rewrite_options = {
            "partial-progress.enabled": "true",
            **changed_options,
            **(options or {}),
        }
        return (self.call_statement("rewrite_data_files", **arguments, options=rewrite_options),)

    def orphan_dry_run_statement(self) -> str:
        """The dry run that lists orphan files."""
        return sql.call_sql(
            self.facts.catalog,
            "remove_orphan_files",
            **sql.orphan_arguments(self.facts.name, self.facts.location),
        )

    def alter_statement(self, properties: dict[str, str]) -> str:
        """An ALTER TABLE … SET TBLPROPERTIES on this table."""
        return sql.set_properties_sql(self.facts.sql_name, properties)


def threshold_options(thresholds: Thresholds, target_bytes: int) -> dict[str, str]:
    """The limits as options of ``rewrite_data_files``, where they differ from the procedure's
    defaults.
    """

    def options(thresholds: Thresholds) -> dict[str, str]:
        return {
            "min-input-files": str(thresholds.min_input_files),
            "min-file-size-bytes": str(min_file_size(target_bytes, thresholds.min_file_size_ratio)),
            "max-file-size-bytes": str(max_file_size(target_bytes, thresholds.max_file_size_ratio)),
        }

    default_options = options(Thresholds())
    return {
        option: option_value
        for option, option_value in options(thresholds).items()
        if option_value != default_options[option]
    }


def undersized_part(group: FileGroup, limit_bytes: int) -> FileGroup:
    """The files of a group that are smaller than a limit; exact, since limits are bucket edges.

    Raises ParameterError for a limit at which the facts were not cut.
    """
    if any(bucket.min_bytes < limit_bytes <= bucket.max_bytes for bucket in group.buckets):
        raise ParameterError(
            f"The facts of {group.partition} are not counted at {limit_bytes:,} bytes; "
            "observe the table with size_ratios=thresholds.size_ratios."
        )
    buckets_below = tuple(b for b in group.buckets if b.max_bytes < limit_bytes)
    return FileGroup(group.partition, group.kind, buckets_below)


def oversized_part(group: FileGroup, limit_bytes: int, row_group_bytes: int) -> FileGroup:
    """The files of a group that are larger than a limit, and that a rewrite can split: with more
    rows than a writer puts into any file, or row groups; raises as :func:`undersized_part` does.
    """
    buckets_under_limit = undersized_part(group, limit_bytes + 1).buckets
    splittable_buckets = (
        b
        for b in group.buckets
        if b not in buckets_under_limit
        and (
            b.record_count > ROWS_PER_LOOK * b.file_count
            or b.size_in_bytes > row_group_bytes * b.file_count
        )
    )
    return FileGroup(group.partition, group.kind, tuple(splittable_buckets))
