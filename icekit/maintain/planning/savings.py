"""Say what maintenance would save a full scan of a table now, in plain units, and price it so that
a person can check the sum; pure.

No score: one full scan of the table costs its bytes, plus a fixed number of bytes for each file
that it opens, which is how Iceberg itself weighs a file when it packs scan tasks
(``read.split.open-file-cost``, 4 MiB unless the table sets another). Savings are priced in the same
way, and tables are ranked by them.
"""

from collections.abc import Iterable
from dataclasses import fields

from icekit.common import frozen
from icekit.common.commands.compaction_policy import CompactionPolicy
from icekit.common.units import count, percent, size
from icekit.health.diagnose.findings import Finding, Findings, Thresholds, covering_findings
from icekit.health.facts.column_support import engine_limits
from icekit.health.facts.files import Totals
from icekit.health.facts.model import TableFacts
from icekit.health.facts.rollup import open_file_cost
from icekit.iceberg.file_kind import DELETE_KINDS
from icekit.iceberg.manifest_counts import SpecManifests
from icekit.maintain.planning.candidates import deletes_over
from icekit.maintain.planning.selection import RewriteSelection, select
from icekit.maintain.prediction import total_of


@frozen
class Savings:
    """What compaction and rewritten manifests would save, and what orphan files hold.

    ``opens_saved`` are the file opens that one full scan saves, as a compaction's plan counts them
    (data files, and delete files opened for each data file); ``delete_rows_gone`` the delete
    records that no read applies any more; ``manifests_gone`` are saved in planning.
    ``rewrite_bytes`` is the cost: bytes to rewrite. ``opens``, ``delete_rows`` and ``manifests``
    are the totals of one full scan. ``saved`` is what one full scan saves, in bytes: (opens +
    manifests) × the cost of an open + the bytes of deleted rows and delete files; ``scan_cost`` is
    the full cost of that scan. ``orphan_files`` are counted only where storage was listed, and
    ``orphan_bytes`` rest on the sizes of ``orphan_files_weighed`` of them (see
    :class:`~icekit.health.facts.storage.StorageFacts`). Unknown is None.
    """

    opens_saved: int = 0
    delete_rows_gone: int = 0
    manifests_gone: int = 0
    rewrite_bytes: int = 0
    opens: int = 0
    delete_rows: int = 0
    manifests: int = 0
    saved: int = 0
    scan_cost: int = 0
    orphan_files: int | None = None
    orphan_bytes: int | None = None
    orphan_files_weighed: int | None = None

    def share_of(self, saved: int) -> float | None:
        """A saving as a share of the full scan's cost; None for a table without files."""
        return min(saved / self.scan_cost, 1.0) if self.scan_cost else None

    @property
    def share(self) -> float | None:
        """The saving as a share of the full scan's cost; None for a table without files."""
        return self.share_of(self.saved)

    @property
    def are_orphans_estimated(self) -> bool:
        """True if the orphans' bytes are estimated from some of the orphans only."""
        return (self.orphan_files_weighed or 0) < (self.orphan_files or 0)


def selection(
    facts: TableFacts,
    findings: Findings,
    thresholds: Thresholds | None = None,
    policy: CompactionPolicy | None = None,
) -> RewriteSelection:
    """What ``icekit compact`` with the options of ``policy`` would rewrite now, and what it would
    leave alone.
    """
    limits = thresholds or Thresholds()
    # Which partitions are recent, the facts know for the default time only.
    policy = (policy or CompactionPolicy()).replaced(leave_alone_minutes=None)
    return select(facts, findings, policy, limits, recent=facts.recent)


def savings_of(
    facts: TableFacts,
    findings: Findings,
    thresholds: Thresholds | None = None,
    policy: CompactionPolicy | None = None,
) -> Savings:
    """Work out what maintenance would save if it ran now; only for problems that ``findings`` name,
    as a plan does, and with the options of ``policy``. A table with contradictions saves nothing before these are fixed.

    What coarser partitions or a larger target file size would save, ``icekit tune`` measures.
    """
    if facts.contradictions or facts.is_unreadable:
        findings = Findings()
    chosen_candidates = selection(facts, findings, thresholds, policy).chosen
    under_deletes = {
        p for c in chosen_candidates if c.mode in {"deletes", "vectors"} for p in c.partitions
    }
    deletes = [group for kind in DELETE_KINDS for group in facts.of_kind(kind)]
    of_deletes = Totals.of_groups(deletes)
    # A full scan opens a delete file once for each data file it applies to.
    pairs = {partition: load.opens for partition, load in deletes_over(facts).items()}
    mean_delete = of_deletes.mean_bytes or 0.0
    opens = facts.data.file_count + sum(pairs.values())
    rewrites = total_of(c.prediction for c in chosen_candidates)
    opens_saved = max(rewrites.file_opens_saved, 0)  # a split costs some
    manifests = facts.manifests
    of_manifests = manifest_rewrites(facts, findings)
    manifests_saved = sum(saved for _, _, _, saved, _ in of_manifests)
    bytes_saved = (
        rewrites.bytes_in
        - rewrites.bytes_out
        + round(mean_delete * sum(pairs.get(p, 0) for p in under_deletes))
    )
    cost = open_file_cost(facts)
    # Where another table shares the location, nobody can say which files are orphans.
    listed_storage = facts.storage if facts.storage and not facts.storage.sharing.shared else None
    return Savings(
        opens_saved=opens_saved,
        delete_rows_gone=Totals.of_groups(
            g for g in deletes if g.partition in under_deletes
        ).record_count,
        manifests_gone=manifests_saved,
        rewrite_bytes=rewrites.bytes_in,
        opens=opens,
        delete_rows=of_deletes.record_count,
        manifests=manifests.count,
        saved=(opens_saved + manifests_saved) * cost + bytes_saved,
        scan_cost=(opens + manifests.count) * cost
        + facts.data.size_in_bytes
        + round(mean_delete * sum(pairs.values()))
        + manifests.size_in_bytes,
        orphan_files=listed_storage.orphan_count if listed_storage else None,
        orphan_bytes=listed_storage.orphan_bytes if listed_storage else None,
        orphan_files_weighed=listed_storage.weighed_count if listed_storage else None,
    )


def savings_sentence(
    facts: TableFacts, findings: Findings, thresholds: Thresholds | None = None
) -> dict[str, str]:
    """What the remedy of each finding saves a full scan, as a sentence by the finding's name, and
    of all together under an empty name.

    A remedy that makes no scan cheaper has none. What one action saves is said once, with the
    finding whose action does the most, so the savings of the findings add up to those of all
    together.
    """
    covered = covering_findings(findings.names)
    actions: dict[str, list[Finding]] = {}
    for finding in findings:
        actions.setdefault(covered.get(finding.name, finding.name), []).append(finding)
    sentences: dict[str, str] = {}
    fixed_findings: list[Finding] = []
    nothing = before = savings_of(facts, Findings())
    for name, fixed in actions.items():
        fixed_findings += fixed
        after = savings_of(facts, Findings(fixed_findings), thresholds)
        if sentence := _saved(before, after, "Saves"):
            sentences[name] = sentence
        before = after
    total_text = _saved(nothing, before, "Fixing all of these saves") if len(findings) > 1 else ""
    if total_sentence := " ".join(filter(None, [total_text, waiting(facts, findings, thresholds)])):
        sentences[""] = total_sentence
    return sentences


def waiting(facts: TableFacts, findings: Findings, thresholds: Thresholds | None = None) -> str:
    """The rewrites that would help, but would be left alone now, as a sentence with the reason;
    empty if there are none.
    """
    if facts.contradictions:
        first = " and ".join(each.replace("_", " ") for each in facts.contradictions)
        return f"Nothing is rewritten before these findings are fixed: {first}."
    if facts.unsupported_columns:
        limits = engine_limits(facts.engine, facts.unsupported_columns)
        return f"Nothing is rewritten: {limits}."
    postponed = selection(facts, findings, thresholds).postponed
    return f"Compaction postpones {postponed}" if postponed else ""


def _saved(before: Savings, after: Savings, saves: str) -> str:
    """What ``after`` saves in addition to ``before``; empty if that is nothing."""
    opens = after.opens_saved - before.opens_saved
    manifests = after.manifests_gone - before.manifests_gone
    parts = [
        f"{opens:,} of {count(after.opens, 'file open')}" if opens > 0 else "",
        f"{manifests:,} of {count(after.manifests, 'manifest')}" if manifests > 0 else "",
    ]
    if not any(parts):
        return ""
    share = after.share_of(after.saved - before.saved) or 0.0
    rewritten = after.rewrite_bytes - before.rewrite_bytes
    cost = f" ({percent(share)} cheaper by Iceberg's weights)" if share > 0 else ""
    bytes_ = f" by rewriting {size(rewritten)}" if rewritten > 0 else ""
    return f"{saves} each full scan {' and '.join(filter(None, parts))}{cost}{bytes_}."


def total(each: Iterable[Savings]) -> Savings:
    """Sums over tables; a figure is absent only if no table has it."""
    all_savings = list(each)
    sums: dict[str, int | None] = {}
    for name in (f.name for f in fields(Savings)):
        values = [getattr(savings, name) for savings in all_savings]
        known_values = [value for value in values if value is not None]
        sums[name] = sum(known_values) if known_values else None
    return Savings(**sums) if all_savings else Savings()  # type: ignore[arg-type]


def manifest_rewrites(
    facts: TableFacts, findings: Findings
) -> list[tuple[SpecManifests, int, int, int, tuple[str, ...]]]:
    """The manifests that a rewrite would change, spec by spec, each with their number before and
    after, how many fewer a scan opens, and the findings that ask for it.
    """
    target = facts.int_setting("commit.manifest.target-size-bytes")
    rewrites = []
    for of_spec in facts.manifests.by_spec:
        is_asked = {
            "fragmented_manifests": of_spec.is_fragmented(target),
            "overlapping_manifests": of_spec.spec_id == facts.default_spec_id,
        }
        finding_names = tuple(
            name for name, holds in is_asked.items() if holds and name in findings.names
        )
        before = of_spec.rewritten_count(target)
        if finding_names and before:
            after = of_spec.replacement_count(target)
            saved = of_spec.saved_count(target)
            rewrites.append((of_spec, before, after, saved, finding_names))
    return rewrites
