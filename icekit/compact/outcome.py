"""Hold what became of a plan: per action what was predicted and what the table says, and the proof."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from icekit.compact.lineage import Actual
from icekit.compact.model import EQUALITY_DELETE, Action, Plan
from icekit.errors import EXIT_HEALTHY, EXIT_UNHEALTHY
from icekit.saving import slug, write_json

#: ``planned``: a dry run. ``done``: nothing of it is left. ``skipped``: nothing was left to do.
#: ``split``: run again as smaller actions. ``failed`` and ``stopped``: something is left. ``disproved``: it changed rows, or
#: lost something. ``unproved``: nothing of it is left, and that no row changed could not be proved; a resumed run tries that again.
Status = Literal["planned", "done", "skipped", "split", "failed", "stopped", "pending", "disproved", "unproved"]


#: How the ledger and the JSON name what a conversion read and wrote, and the fields of :class:`~icekit.compact.lineage.Actual`.
CONVERTED = {"files_read": "files_in", "bytes_read": "bytes_in", "files_written": "files_out", "bytes_written": "bytes_out"}


@dataclass(frozen=True, slots=True)
class ActionOutcome:
    """What became of one action; ``actual`` is read from the table's own commits."""

    action: Action
    status: Status
    attempts: int = 0
    actual: Actual = field(default_factory=Actual)
    seconds: float = 0.0
    snapshot_ids: tuple[int, ...] = ()
    error: str | None = None


@dataclass(frozen=True)
class Outcome:
    """What became of a plan.

    ``proof`` is :class:`icekit.prove.Proof` or None for a dry run; ``leftovers`` are files
    that failed attempts wrote and no snapshot names, with ``clean_up`` the command that would
    remove them. ``then`` is what came of a compaction that a conversion was followed by,
    ``iceberg_version`` that of the session it was run in. ``exit_status`` is 0 when everything planned is done and proved.
    """

    plan: Plan
    run_id: str | None
    actions: tuple[ActionOutcome, ...]
    proof: Any = None
    seconds: float = 0.0
    leftovers: tuple[str, ...] = ()
    clean_up: str | None = None
    notes: tuple[str, ...] = ()
    then: Outcome | None = None
    iceberg_version: str | None = None

    @property
    def is_dry_run(self) -> bool:
        """Tell whether nothing was run."""
        return self.run_id is None

    @property
    def status(self) -> str:
        """``nothing to do``, ``dry run``, ``done``, ``failed``, ``stopped`` or ``not proved``."""
        if not self.actions:
            return "nothing to do"
        if self.is_dry_run:
            return "dry run"
        if self.proof is not None and self.proof.ok is False:
            return "not proved"
        found = {a.status for a in self.actions}
        if "stopped" in found or "pending" in found:
            return "stopped" if "failed" not in found else "failed"
        if "failed" in found:
            return "failed"
        return "done" if self.proof is None or self.proof.ok else "not proved"

    @property
    def exit_status(self) -> int:
        """0 done, a dry run, or nothing to do; 1 otherwise."""
        return EXIT_HEALTHY if self.status in {"done", "dry run", "nothing to do"} else EXIT_UNHEALTHY

    @property
    def actual(self) -> Actual:
        """The sum over all actions that rewrite data files or convert deletes; other units do not add up."""
        return sum((one.actual for one in self.actions if one.action.prediction.unit in {"file", EQUALITY_DELETE}), Actual())

    @property
    def failure(self) -> str | None:
        """Why the run has failed, or None."""
        return f"{self.plan.name}: {self.status}." if self.exit_status else None

    def write_into(self, folder: Path) -> Path:
        """Write the plan and what became of it as JSON into a folder, under the name of the table."""
        from icekit.compact.document import document

        return write_json(folder / f"{slug(self.plan.name)}.plan.json", document(self))

    def __repr__(self) -> str:
        from icekit.show.plan import outcome_text

        return outcome_text(self)

    def _repr_html_(self) -> str:
        from icekit.show.plan import outcome_html

        return outcome_html(self)


def measured(outcome: ActionOutcome, *, whole: bool = True) -> Mapping[str, float]:
    """What the ledger keeps of an action that was run, for calibration.

    ``whole`` is False for one that was killed in between: how long that took nobody knows.
    """
    a = outcome.actual
    known = {"seconds": round(outcome.seconds, 3)} if whole else {}
    if (unit := outcome.action.prediction.unit) != "file":
        # Under names of their own: how fast manifests were rewritten or deletes converted says nothing of rewrites of data files.
        read = {name: getattr(a, field) for name, field in CONVERTED.items()} if unit == EQUALITY_DELETE else {}
        return {"items_before": a.items_before, "items_after": a.items_after, **read, **known}
    return {
        "files_in": a.files_in,
        "bytes_in": a.bytes_in,
        "files_out": a.files_out,
        "bytes_out": a.bytes_out,
        "delete_files_removed": a.delete_files_removed,
        **known,
    }
