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
from icekit.maintain.planning.candidates import delete_loads
from icekit.maintain.planning.selection import RewriteSelection, select
from icekit.maintain.prediction import total_of


@frozen
class Savings:
    """What compaction and rewritten manifests would save, and what orphan files hold.

    ``opens_saved`` are the file opens that one full scan saves, as a compaction's plan counts them
    (data files, and delete files opened for each data file); ``delete_rows_gone`` the delete
    records that no read applies any more; ``manifests_gone`` are saved in planning.
    ``rewrite_bytes`` is the cost: bytes to rewrite. ``scan_opens``, ``scan_delete_rows`` and
    ``scan_manifests`` are the totals of one full scan. ``saved_bytes`` is what one full scan saves:
    (opens + manifests) × the cost of an open + the bytes of deleted rows and delete files;
    ``scan_cost_bytes`` is the full cost of that scan. ``orphan_files`` are counted only
    where storage was listed, and ``orphan_bytes`` rest on the sizes of ``orphan_files_weighed`` of
    them (see :class:`~icekit.health.facts.storage.StorageFacts`). Unknown is None.
    """

    opens_saved: int = 0
    delete_rows_gone: int = 0
    manifests_gone: int = 0
    rewrite_bytes: int = 0
    scan_opens: int = 0
    scan_delete_rows: int = 0
    scan_manifests: int = 0
    saved_bytes: int = 0
    scan_cost_bytes: int = 0
    orphan_files: int | None = None
    orphan_bytes: int | None = None
    orphan_files_weighed: int | None = None

    def share_of(self, saved_bytes: int) -> float | None:
        """A saving as a share of the full scan's cost; None for a table without files."""
        return min(saved_bytes / self.scan_cost_bytes, 1.0) if self.scan_cost_bytes else None

    @property
    def share(self) -> float | None:
        """The saving as a share of the full scan's cost; None for a table without files."""
        return self.share_of(self.saved_bytes)

    @property
    def are_orphans_estimated(self) -> bool:
        """True if the orphans' bytes are estimated from some of the orphans only."""
        return (self.orphan_files_weighed or 0) < (self.orphan_files or 0)


def current_selection(
    facts: TableFacts,
    findings: Findings,
    thresholds: Thresholds | None = None,
    policy: CompactionPolicy | None = None,
) -> RewriteSelection:
    """What ``icekit compact`` with the options of ``policy`` would rewrite now, and what it would
    leave alone.
    """
    # The facts know which partitions are recent only for the default time, and no past speed.
    policy = (policy or CompactionPolicy()).with_values(
        leave_alone_minutes=None, budget_minutes=None
    )
    return select(facts, findings, policy, thresholds or Thresholds(), recent=facts.recent)


def savings_of(
    facts: TableFacts,
    findings: Findings,
    thresholds: Thresholds | None = None,
    policy: CompactionPolicy | None = None,
) -> Savings:
    """Work out what maintenance would save if it ran now; only for problems that ``findings`` name,
    as a plan does, and with the options of ``policy``. A table with contradictions saves nothing
    before these are fixed.

    What coarser partitions or a larger target file size would save, ``icekit tune`` measures.
    """
    selection = current_selection(facts, findings, thresholds, policy)
    return savings_of_selection(facts, findings, selection)


def savings_of_selection(
    facts: TableFacts, findings: Findings, selection: RewriteSelection
) -> Savings:
    """Work out what the selected rewrites would save, and the manifests that ``findings`` name."""
    if facts.contradictions or facts.has_unreadable_columns:
        findings = Findings()
    selected_candidates = selection.selected_candidates
    partitions_under_deletes = {
        p for c in selected_candidates if c.mode in {"deletes", "vectors"} for p in c.partitions
    }
    delete_groups = [delete_group for kind in DELETE_KINDS for delete_group in facts.of_kind(kind)]
    delete_totals = Totals.of_groups(delete_groups)
    # A full scan opens a delete file once for each data file it applies to.
    delete_opens_by_partition = {
        partition: load.delete_opens for partition, load in delete_loads(facts).items()
    }
    mean_delete_bytes = delete_totals.mean_bytes or 0.0
    scan_opens = facts.data.file_count + sum(delete_opens_by_partition.values())
    rewrite_total = total_of(c.prediction for c in selected_candidates)
    opens_saved = max(rewrite_total.file_opens_saved, 0)  # a split costs some
    manifest_counts = facts.manifests
    manifests_saved = sum(rewrite.opens_saved for rewrite in manifest_rewrites(facts, findings))
    bytes_saved = (
        rewrite_total.bytes_in
        - rewrite_total.bytes_out
        + round(
            mean_delete_bytes
            * sum(delete_opens_by_partition.get(p, 0) for p in partitions_under_deletes)
        )
    )
    open_cost_bytes = open_file_cost(facts)
    # Where another table shares the location, nobody can say which files are orphans.
    listed_storage = facts.storage if facts.storage and not facts.storage.sharing.shared else None
    return Savings(
        opens_saved=opens_saved,
        delete_rows_gone=Totals.of_groups(
            g for g in delete_groups if g.partition in partitions_under_deletes
        ).record_count,
        manifests_gone=manifests_saved,
        rewrite_bytes=rewrite_total.bytes_in,
        scan_opens=scan_opens,
        scan_delete_rows=delete_totals.record_count,
        scan_manifests=manifest_counts.count,
        saved_bytes=(opens_saved + manifests_saved) * open_cost_bytes + bytes_saved,
        scan_cost_bytes=(scan_opens + manifest_counts.count) * open_cost_bytes
        + facts.data.size_in_bytes
        + round(mean_delete_bytes * sum(delete_opens_by_partition.values()))
        + manifest_counts.size_in_bytes,
        orphan_files=listed_storage.orphan_count if listed_storage else None,
        orphan_bytes=listed_storage.orphan_bytes if listed_storage else None,
        orphan_files_weighed=listed_storage.weighed_count if listed_storage else None,
    )


def savings_sentences(
    facts: TableFacts, findings: Findings, thresholds: Thresholds | None = None
) -> dict[str, str]:
    """What the remedy of each finding saves a full scan, as a sentence by the finding's name, and
    what all together save under an empty name.

    A remedy that makes no scan cheaper has none. What one action saves is said once, with the
    finding whose action does the most, so the savings of the findings add up to those of all
    together.
    """
    covering_by_name = covering_findings(findings.names)
    findings_by_action: dict[str, list[Finding]] = {}
    for finding in findings:
        findings_by_action.setdefault(covering_by_name.get(finding.name, finding.name), []).append(
            finding
        )
    sentences_by_finding: dict[str, str] = {}
    fixed_findings: list[Finding] = []
    selection = current_selection(facts, Findings(), thresholds)
    no_savings = savings_before = savings_of_selection(facts, Findings(), selection)
    for action_finding, action_findings in findings_by_action.items():
        fixed_findings += action_findings
        selection = current_selection(facts, Findings(fixed_findings), thresholds)
        savings_after = savings_of_selection(facts, Findings(fixed_findings), selection)
        if sentence := _savings_sentence(savings_before, savings_after, "Saves"):
            sentences_by_finding[action_finding] = sentence
        savings_before = savings_after
    # The last selection is that of all findings.
    closing_sentences = [_waiting_sentence(facts, selection)]
    if len(findings) > 1:
        closing_sentences.insert(
            0, _savings_sentence(no_savings, savings_before, "Fixing all of these saves")
        )
    if closing_text := " ".join(filter(None, closing_sentences)):
        sentences_by_finding[""] = closing_text
    return sentences_by_finding


def waiting_sentence(
    facts: TableFacts, findings: Findings, thresholds: Thresholds | None = None
) -> str:
    """The rewrites that would help, but would be left alone now, as a sentence with the reason;
    empty if there are none.
    """
    return _waiting_sentence(facts, current_selection(facts, findings, thresholds))


def _waiting_sentence(facts: TableFacts, selection: RewriteSelection) -> str:
    if facts.contradictions:
        contradictions_text = " and ".join(
            contradiction.replace("_", " ") for contradiction in facts.contradictions
        )
        return f"Nothing is rewritten before these findings are fixed: {contradictions_text}."
    if facts.unsupported_columns:
        limits_text = engine_limits(facts.engine, facts.unsupported_columns)
        return f"Nothing is rewritten: {limits_text}."
    postponed_text = selection.postponed_text
    return f"Compaction postpones {postponed_text}" if postponed_text else ""


def _savings_sentence(savings_before: Savings, savings_after: Savings, saves_verb: str) -> str:
    """What ``after`` saves in addition to ``before``; empty if that is nothing."""
    opens_saved = savings_after.opens_saved - savings_before.opens_saved
    manifests_saved = savings_after.manifests_gone - savings_before.manifests_gone
    saved_texts = [
        f"{opens_saved:,} of {count(savings_after.scan_opens, 'file open')}"
        if opens_saved > 0
        else "",
        f"{manifests_saved:,} of {count(savings_after.scan_manifests, 'manifest')}"
        if manifests_saved > 0
        else "",
    ]
    if not any(saved_texts):
        return ""
    share = savings_after.share_of(savings_after.saved_bytes - savings_before.saved_bytes) or 0.0
    rewritten_bytes = savings_after.rewrite_bytes - savings_before.rewrite_bytes
    share_text = f" ({percent(share)} cheaper by Iceberg's weights)" if share > 0 else ""
    rewrite_text = f" by rewriting {size(rewritten_bytes)}" if rewritten_bytes > 0 else ""
    saved_text = " and ".join(filter(None, saved_texts))
    return f"{saves_verb} each full scan {saved_text}{share_text}{rewrite_text}."


def savings_total(table_savings: Iterable[Savings]) -> Savings:
    """Sums over tables; a figure is absent only if no table has it."""
    all_savings = list(table_savings)
    sums_by_field: dict[str, int | None] = {}
    for field_name in (f.name for f in fields(Savings)):
        field_values = [getattr(savings, field_name) for savings in all_savings]
        known_values = [value for value in field_values if value is not None]
        sums_by_field[field_name] = sum(known_values) if known_values else None
    return Savings(**sums_by_field) if all_savings else Savings()  # type: ignore[arg-type]


@frozen
class ManifestRewrite:
    """The manifests of one spec that a rewrite would change: their number before and after, how
    many fewer a scan opens, and the findings that ask for it.
    """

    spec_manifests: SpecManifests
    count_before: int
    count_after: int
    opens_saved: int
    finding_names: tuple[str, ...]


def manifest_rewrites(facts: TableFacts, findings: Findings) -> list[ManifestRewrite]:
    """What ``rewrite_manifests`` would change, spec by spec."""
    target_bytes = facts.int_setting("commit.manifest.target-size-bytes")
    rewrites: list[ManifestRewrite] = []
    for spec_manifests in facts.manifests.by_spec:
        applies_by_finding = {
            "fragmented_manifests": spec_manifests.is_fragmented(target_bytes),
            "overlapping_manifests": spec_manifests.spec_id == facts.default_spec_id,
        }
        finding_names = tuple(
            finding_name
            for finding_name, applies in applies_by_finding.items()
            if applies and finding_name in findings.names
        )
        count_before = spec_manifests.rewritten_count(target_bytes)
        if finding_names and count_before:
            rewrite = ManifestRewrite(
                spec_manifests=spec_manifests,
                count_before=count_before,
                count_after=spec_manifests.replacement_count(target_bytes),
                opens_saved=spec_manifests.saved_count(target_bytes),
                finding_names=finding_names,
            )
            rewrites.append(rewrite)
    return rewrites
