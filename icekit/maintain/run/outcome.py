"""Hold the outcome of a plan: predicted and actual per action, and the proof; and its JSON."""

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from icekit.common import frozen
from icekit.common.command_line import command_line
from icekit.common.errors import EXIT_UNHEALTHY, Status
from icekit.common.saving import slug, versions, write_json
from icekit.common.units import count, elapsed, size, span
from icekit.common.view import TEXT, Badge, Block, Folded, Grid, Listing, Sentence, Shown
from icekit.health.facts.retention import ExpirySummary
from icekit.health.storage.orphans import ORPHAN_AGE
from icekit.iceberg.filter_opens import FilterOpens
from icekit.maintain.action import Action
from icekit.maintain.plan import Explained, Plan, Skipped
from icekit.maintain.prediction import EQUALITY_DELETE, Certainty, Prediction
from icekit.maintain.record.claims import ActionRecord
from icekit.maintain.record.results import Actual

if TYPE_CHECKING:
    from icekit.rows.proof.proof import Proof


@frozen
class ActionOutcome:
    """The outcome of one action; ``actual`` is read from the table's own commits. ``filters`` is
    what filters open of the files before, and of those that it wrote. ``error_class`` is the name
    of the error's class, by which a refusal is told from a failure.
    """

    action: Action
    status: Status
    attempts: int = 0
    actual: Actual = field(default_factory=Actual)
    seconds: float = 0.0
    snapshot_ids: tuple[int, ...] = ()
    error: str | None = None
    error_class: str | None = None
    filters: tuple[FilterOpens, ...] = ()

    @property
    def change(self) -> str:
        """``9 files → 1 file``, in the units of the action's prediction."""
        prediction = self.action.prediction
        a = self.actual
        count_before, count_after = (
            (a.files_in, a.files_out)
            if prediction.unit == "file"
            else (a.items_before, a.items_after)
        )
        return replace(
            prediction, files_in=count_before, files_out=count_after, certainty=Certainty.EXACT
        ).change_text

    def proved_status(self, proof: "Proof | None") -> Status:
        """The status after a proof; None: there was nothing to compare."""
        if proof is None or proof.ok:
            return self.status
        if proof.ok is False:
            return Status.DISPROVED
        return Status.UNPROVED if self.status in {Status.DONE, Status.SPLIT} else self.status

    @property
    def text(self) -> str:
        """``done: 9 files → 1 file, 1 commit, 2.3 s``."""
        why = f"; {self.error}" if self.error and self.status is Status.FAILED else ""
        commits_text = count(self.actual.commits, "commit")
        return f"{self.status}: {self.change}, {commits_text}, {self.seconds:.1f} s{why}"


@dataclass(frozen=True, repr=False)
class Outcome(Shown):
    """The outcome of a plan.

    ``proof`` is None for a dry run. ``iceberg_version`` is the version in the session of the run.
    ``exit_status`` is 0 when everything planned is done and proved.
    """

    plan: Plan
    run_id: str | None
    actions: tuple[ActionOutcome, ...]
    proof: "Proof | None" = None
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    iceberg_version: str | None = None

    @property
    def is_dry_run(self) -> bool:
        """Whether nothing was run."""
        return self.run_id is None

    @property
    def status(self) -> Status:
        """How the run ended: by its proof, then by its most serious action."""
        if not self.actions:
            return Status.REFUSED if self.plan.refused else Status.NOTHING
        if self.is_dry_run:
            return Status.PLANNED
        if self.proof is not None and self.proof.ok is False:
            return Status.DISPROVED
        statuses = {a.status for a in self.actions}
        if Status.FAILED in statuses:
            return Status.FAILED
        if statuses & {Status.STOPPED, Status.PENDING}:
            return Status.STOPPED
        if self.proof is not None and not self.proof.ok:
            return Status.UNPROVED
        return Status.REFUSED if self.plan.refused else Status.DONE

    @property
    def exit_status(self) -> int:
        """That of the status: 0 done, a dry run, or nothing to do; 130 stopped; otherwise 1."""
        return self.status.exit_status

    @property
    def actual(self) -> Actual:
        """The sum over all actions that rewrite data files or convert deletes; other units do not
        add up.
        """
        return sum(
            (
                action.actual
                for action in self.actions
                if action.action.prediction.unit in {"file", EQUALITY_DELETE}
            ),
            Actual(),
        )

    @property
    def failure(self) -> str | None:
        """Why the run failed, or None."""
        return f"{self.plan.table_name}: {self.status}." if self.exit_status else None

    def write_into(self, folder: Path) -> Path:
        """Write the plan and its outcome as JSON into a folder, named after the table."""
        return write_json(folder / f"{slug(self.plan.table_name)}.plan.json", document(self))

    def blocks(self) -> list[Block]:
        """Predicted next to actual, then the proof; of a dry run, the plan."""
        if self.is_dry_run:
            if not self.actions:
                return self.plan.blocks()
            return [
                Badge("info", "dry run", self.plan.table_name),
                *self.plan.warnings(),
                Sentence(self.plan.summary, is_strong=True),
                Folded("The plan", self.plan.details()),
                Sentence(
                    "Nothing has run. To run it, add --execute to the same command (execute=True in Python)."
                ),
            ]
        look_by_exit_status = {0: ("fine", "✔"), EXIT_UNHEALTHY: ("critical", "✖")}
        badge_kind, status_mark = look_by_exit_status.get(self.exit_status, ("warning", "▲"))
        return [
            Badge(
                badge_kind,
                f"{status_mark} {self.status}",
                self.plan.table_name,
                f"{span(self.seconds * 1000)}, run {self.run_id}",
            ),
            comparison_grid(self),
            *(
                Sentence(a.error, f"{a.action.action_id} {a.status}")
                for a in self.actions
                if a.error
            ),
            *(
                Sentence(text, a.action.action_id)
                for a in self.actions
                for text in _filter_sentences(a)
            ),
            *([Listing("\n".join(self.proof.lines()))] if self.proof is not None else []),
            *map(Sentence, _closing_sentences(self)),
        ]


def run_notes(plan: Plan, outcomes: Sequence[ActionOutcome], proving_mode: str) -> tuple[str, ...]:
    """What a person should know after a run."""
    notes: list[str] = []
    unfinished_statuses = {Status.FAILED, Status.STOPPED, Status.SPLIT}
    if any(o.attempts > 1 or (o.attempts and o.status in unfinished_statuses) for o in outcomes):
        procedure_options = "--procedures", "remove_orphan_files"
        notes.append(
            "Failed attempts may have left files that no snapshot names. To list them, once "
            f"they are {ORPHAN_AGE.days} days old: "
            + command_line("maintain", plan.catalog, plan.table_name, *procedure_options)
        )
    if proving_mode == "none" and any(outcome.snapshot_ids for outcome in outcomes):
        notes.append("Nothing was compared before or after the commits: prove is none.")
    return tuple(notes)


def _filter_sentences(outcome: ActionOutcome) -> Iterable[str]:
    """What filters open before and after, and what was predicted if that differs."""
    predicted_by_column = {each.column: each for each in outcome.action.prediction.filters}
    for opens in outcome.filters:
        if not opens.skips_files:
            continue
        predicted_opens = predicted_by_column.get(opens.column, opens)
        prediction_note = (
            ""
            if predicted_opens.after_text == opens.after_text
            else f" (predicted {predicted_opens.after_text})"
        )
        yield f"{opens.change_text}{prediction_note}."


def recorded_outcome(action: Action, record: ActionRecord) -> ActionOutcome:
    """The outcome of an action that a run did and proved before the run ended, from its record."""
    return ActionOutcome(
        action,
        Status.DONE,
        record.attempts,
        record.actual or Actual(),
        record.seconds or 0.0,
        record.snapshot_ids,
    )


#: Maintenance counts manifests, snapshots or orphans where a rewrite counts files, so most of its
# figures include their unit.
_COMPARED = dict.fromkeys(
    ("action", "status", "change", "bytes", "delete_files_removed", "time"), TEXT
)


def comparison_grid(outcome: Outcome) -> Grid:
    """A row per action, and their sum: before and after, each next to the prediction."""
    # A part of a split action has no prediction of its own.
    rows = [
        _comparison_row(
            o.action.action_id,
            o.status,
            o,
            o.action.prediction if "." not in o.action.action_id else None,
        )
        for o in outcome.actions
    ]
    if len(rows) > 1 and all(o.action.prediction.unit == "file" for o in outcome.actions):
        total_outcome = ActionOutcome(
            outcome.actions[0].action,
            Status.DONE,
            actual=outcome.actual,
            seconds=sum(o.seconds for o in outcome.actions),
        )
        rows.append(_comparison_row("all", "", total_outcome, outcome.plan.prediction))
    grid = Grid("", _COMPARED, rows)
    if {None, "0", "0, as predicted"}.issuperset(grid["delete_files_removed"]):
        return grid.only(*(column for column in _COMPARED if column != "delete_files_removed"))
    return grid


def _comparison_row(
    row_title: str, status_text: str, outcome: ActionOutcome, prediction: Prediction | None
) -> tuple[str | None, ...]:
    """What an action did not come to count is absent, and not 0; maintenance of metadata has
    neither bytes nor delete files.
    """
    actual = outcome.actual
    unit = outcome.action.prediction.unit
    time_text = elapsed(outcome.seconds) + (
        f" (predicted {elapsed(prediction.seconds)})" if prediction and prediction.seconds else ""
    )
    if not actual.has_changes:
        return row_title, status_text, None, None, None, time_text
    count_after = actual.files_out if unit == "file" else actual.items_after
    predicted_count_text = (
        f"{prediction.certainty.number_prefix}{prediction.files_out:,}" if prediction else None
    )
    change_text = _beside_prediction(outcome.change, f"{count_after:,}", predicted_count_text)
    if unit not in {"file", EQUALITY_DELETE}:
        return row_title, status_text, change_text, None, None, time_text
    written_text = size(actual.bytes_out)
    removed_count_text = f"{actual.delete_files_removed:,}"
    # A conversion reads whole files for the few bytes of positions it writes: nobody predicts
    # those.
    predicted_size_text = size(prediction.bytes_out) if prediction and unit == "file" else None
    removed_text = _beside_prediction(
        removed_count_text,
        removed_count_text,
        f"{prediction.delete_files_removed:,}" if prediction else None,
    )
    return (
        row_title,
        status_text,
        change_text,
        _beside_prediction(
            f"{size(actual.bytes_in)} → {written_text}", written_text, predicted_size_text
        ),
        removed_text,
        time_text,
    )


def _beside_prediction(change_text: str, actual_text: str, predicted_text: str | None) -> str:
    """``112 → 5, as predicted``; ``96 → 93 (predicted 95)``."""
    return (
        change_text
        if predicted_text is None
        else f"{change_text}, as predicted"
        if actual_text == predicted_text
        else f"{change_text} (predicted {predicted_text})"
    )


def _closing_sentences(outcome: Outcome) -> Iterable[str]:
    yield from outcome.notes
    plan = outcome.plan
    if outcome.actual.commits:
        snapshot_ids = plan.snapshot_id, *(i for a in outcome.actions for i in a.snapshot_ids)
        state_names = [
            f"{plan.table_name}@{snapshot_ids[0]}",
            f"{plan.table_name}@{snapshot_ids[-1]}",
        ]
        yield f"What changed: {command_line('compare', plan.catalog, state_names)}"
    if outcome.status is Status.STOPPED:
        yield (
            f"The plan is not finished. To continue: {plan.resume_command} (with the same "
            "--ledger, if you gave one)"
        )


#: Incremented when a field changes its meaning or is removed; added fields do not count.
SCHEMA_VERSION = 4
# Most partitions listed per action; the rest are only counted.
_PARTITIONS = 100


@frozen
class ActionDocument:
    """One action of a plan's document; not all ``partitions`` are named. ``expiry`` is what an
    expiry removes for good and what it leaves.
    """

    action_id: str
    procedure: str
    why: str
    sql: str
    partition_count: int
    partitions: Sequence[str]
    predicted: Prediction
    status: Status
    attempts: int
    actual: Actual | None
    seconds: float
    snapshot_ids: Sequence[int]
    error: str | None
    error_class: str | None
    expiry: ExpirySummary | None = None
    filters: Sequence[FilterOpens] = ()


@frozen
class ProofDocument:
    """What was compared; ``ok`` is None if not everything could be proved."""

    ok: bool | None
    mode: str
    is_sampled: bool
    seconds: float
    lines: Sequence[str]
    removed: Sequence[str] = ()


@frozen
class PlanDocument:
    """The JSON document of a plan and its outcome; docs/json.md explains its fields."""

    schema_version: int
    catalog: str
    table: str
    status: Status
    exit_status: int
    run_id: str | None
    planned_at: str
    snapshot_id: int | None
    seconds: float
    versions: Mapping[str, str]
    predicted: Prediction | None
    actual: Actual | None
    actions: Sequence[ActionDocument]
    left_alone: Sequence[Skipped]
    parallelism: Sequence[Explained]
    notes: Sequence[str]
    rehearsed: str | None
    proof: ProofDocument | None


def document(outcome: Outcome) -> PlanDocument:
    """The document of a plan and its outcome; secrets are masked when it is written."""
    plan = outcome.plan
    iceberg_version = outcome.iceberg_version
    return PlanDocument(
        SCHEMA_VERSION,
        plan.catalog,
        plan.table_name,
        outcome.status,
        outcome.exit_status,
        outcome.run_id,
        dt.datetime.fromtimestamp(plan.made_at_ms / 1000, dt.UTC).isoformat(),
        plan.snapshot_id,
        round(outcome.seconds, 3),
        versions() | ({"iceberg": iceberg_version} if iceberg_version else {}),
        predicted=plan.prediction if plan.actions else None,
        actual=None if outcome.is_dry_run else outcome.actual,
        actions=[_action_document(action) for action in outcome.actions],
        left_alone=plan.left_alone,
        parallelism=plan.parallelism,
        notes=[*plan.notes, *outcome.notes],
        rehearsed=plan.rehearsed,
        proof=None if outcome.proof is None else _proof_document(outcome.proof),
    )


def _proof_document(proof: "Proof") -> ProofDocument:
    return ProofDocument(
        proof.ok,
        proof.mode,
        proof.is_sampled,
        round(proof.seconds, 3),
        proof.lines(),
        proof.removals,
    )


def _action_document(outcome: ActionOutcome) -> ActionDocument:
    action = outcome.action
    return ActionDocument(
        action.action_id,
        action.procedure,
        action.why,
        action.sql,
        len(action.partitions),
        action.partition_names[:_PARTITIONS],
        action.prediction,
        outcome.status,
        outcome.attempts,
        outcome.actual if outcome.actual.has_changes else None,
        round(outcome.seconds, 3),
        outcome.snapshot_ids,
        outcome.error,
        outcome.error_class,
        action.expiry,
        outcome.filters,
    )
