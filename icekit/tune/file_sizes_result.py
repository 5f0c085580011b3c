"""What the question about file sizes came to, in figures, words and tables."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from icekit.tune import advisory_size as sizes
from icekit.tune.advisory_size.advise import limits, steps
from icekit.tune.advisory_size.trial import SizeTrial
from icekit.tune.advisory_size.written import TOLERANCE, Written
from icekit.tune.answer import Answer, Shown
from icekit.tune.distribution.advise import skew
from icekit.tune.distribution.cadence import Cadence, Until
from icekit.tune.distribution.cohorts import Cohorts
from icekit.tune.distribution.modes import Mode
from icekit.tune.distribution.trial import ModeTrial
from icekit.units import count, percent, size, span

if TYPE_CHECKING:
    from icekit.facts.model import TableFacts
    from icekit.tune.distribution.cadence import Cadence, Until


@dataclass(frozen=True, repr=False)
class FileSizes(Answer):
    """Why files are as large as they are, and what to set.

    ``next_before`` and ``next_after`` are a usual commit's rows written as things are and as advised;
    ``size_trial`` the same for a commit that is large enough for full files; all are None where
    they were not tried. ``until_*`` say when a partition has enough small files for a rewrite.
    ``past_ratio`` is the shuffle of the trial, a row, by the file bytes, a row, of past commits.
    """

    question: ClassVar[str] = "file-sizes"

    chain: sizes.Chain
    modes: tuple[Mode, ...]
    cohorts: Cohorts
    cadence: Cadence | None
    mode_trials: tuple[ModeTrial, ...]
    next_before: Written | None
    next_after: Written | None
    size_trial: SizeTrial | None
    until_before: Until | None
    until_after: Until | None
    past_ratio: float | None

    def summary(self) -> str:
        """Why the files are as they are, and what the change brings, in a few sentences."""
        facts = self.facts
        mean = facts.data.mean_bytes or 0.0
        head = f"{count(facts.data.file_count, 'data file')} of {size(mean)} on average, where the target is {size(facts.target_bytes)}."
        changes = [a for a in self.advice if a.is_change]
        lines = [head]
        if changes:
            told = "; ".join(f"set {a.setting} to {a.proposed or 'its default'}" for a in changes)
            lines.append(f"{told[:1].upper()}{told[1:]}.")
        elif self.next_before is None and self.size_trial is None:
            lines.append("Nothing was tried, so nothing is advised.")
        else:
            lines.append("Leave it as it is: no setting that was tried makes fewer files of a better size.")
        lines += _next(self)
        lines += [a.evidence for a in self.advice if a.setting == "commits"]
        return " ".join(lines)

    def tables(self) -> tuple[Shown, ...]:
        """The chain, the modes, the trials, the cohorts."""
        found = [
            Shown("The chain in force for appends", ("what", "value", "where it comes from"), self.chain.rows(), frozenset({0, 1, 2})),
            Shown(
                "Distribution modes",
                ("operation", "mode", "why", "rows are brought together by"),
                tuple((m.operation, m.value, m.why, m.brings_together) for m in self.modes),
                frozenset(range(4)),
            ),
        ]
        for trial in self.mode_trials:
            rows = tuple(
                (
                    t.mode + (" (in force)" if t.mode == trial.in_force else ""),
                    "–" if t.predicted is None else f"{t.predicted.files:,}",
                    *_row(t.written),
                    _ratio(t.written),
                    f"{t.written.delete_files:,}",
                )
                for t in trial.tried
            )
            found.append(
                Shown(f"{trial.operation}: {trial.described}", ("mode", "predicted", *_HEAD, "shuffle ÷ file", "delete files"), rows)
            )
        if self.size_trial is not None:
            rows = tuple((s.name, *_row(s.written), _ratio(s.written)) for s in steps(self.size_trial))
            found.append(Shown(f"A large commit: {self.size_trial.source.described}", ("advisory size", *_HEAD, "shuffle ÷ file"), rows))
        if self.cohorts.worst:
            rows = tuple(
                (
                    str(c.snapshot_id),
                    c.operation or "expired",
                    c.writer or "–",
                    f"{c.files:,}",
                    f"{c.small_files:,}",
                    f"{c.partitions:,}",
                    c.looks_like,
                )
                for c in self.cohorts.worst
            )
            caption = (
                f"Commits that left the most small files ({self.cohorts.traced:,} of {self.cohorts.small_files:,}; "
                f"{count(self.cohorts.commit_count, 'commit')} in all)"
            )
            found.append(
                Shown(
                    caption,
                    ("snapshot", "operation", "writer", "files", "small", "partitions", "looks like"),
                    rows,
                    frozenset({0, 1, 2, 6}),
                )
            )
        return tuple(found)

    def basis(self) -> tuple[str, ...]:
        """What limits the sizes, when the table is sick again, and what the answer rests on."""
        found = list(limits(self.chain, self.size_trial))
        if self.past_ratio is not None:
            found.append(
                f"Past commits wrote a byte of file for {self.past_ratio:.2f} of shuffle (no commit records its shuffle: the trial's, a row); Iceberg guesses {self.chain.ratio:g}."
            )
        skewed = skew(self.mode_trials[0] if self.mode_trials else None)
        found += [skewed] if skewed else []
        found += _sick(self.until_before, self.until_after)
        if self.modes[0].fanout:
            found.append(
                "Fanout is on: a task keeps a file open for each of its partitions instead of sorting, and its memory grows with them."
            )
        if self.mode_trials:
            found.append(
                "The trials wrote rows of the table again, to clones that are gone. How rows come to a writer is only known where it left a file for each task; "
                "elsewhere they were read in no order."
            )
        return tuple(found)

    def figures(self) -> dict[str, Any]:
        """Everything that was measured; bytes and seconds."""
        trial = self.size_trial
        return {
            "target_bytes": self.facts.target_bytes,
            "advisory_bytes": self.chain.advisory_bytes,
            "ratio_guessed": self.chain.ratio,
            "ratio_of_past_commits": self.past_ratio,
            "chain": [list(row) for row in self.chain.rows()],
            "modes": {m.operation: {"mode": m.value, "why": m.why} for m in self.modes},
            "mode_trials": [
                {
                    "operation": t.operation,
                    "rows": t.described,
                    "spread": asdict(t.spread) if t.spread else None,
                    "modes": [
                        {"mode": m.mode, "predicted": m.predicted.files if m.predicted else None, **_figures(m.written)} for m in t.tried
                    ],
                }
                for t in self.mode_trials
            ],
            "next_commit": {"before": _figures(self.next_before), "after": _figures(self.next_after)},
            "large_commit": [{"name": s.name, "advisory_bytes": s.advisory, **_figures(s.written)} for s in steps(trial)] if trial else [],
            "cohorts": asdict(self.cohorts),
            "cadence": asdict(self.cadence) if self.cadence else None,
            "until_sick": {
                "before": asdict(self.until_before) if self.until_before else None,
                "after": asdict(self.until_after) if self.until_after else None,
            },
        }


_DAY_MS = 86_400_000


def _next(answer: FileSizes) -> list[str]:
    """The next commits, before and after."""
    found = []
    before, after = answer.next_before, answer.next_after
    if before is not None and after is not None and after is not before:
        found.append(f"A usual commit writes {made(before)} now, {made(after)} then.")
    elif before is not None:
        found.append(f"A usual commit writes {made(before)}.")
    if answer.size_trial is not None:
        _, chosen = answer.size_trial.chosen
        first = answer.size_trial.before
        now = f"{made(first)} now, {made(chosen)} then" if chosen is not first else made(first)
        mean = chosen.enough_mean
        share = chosen.well_sized_share
        near = f", within {percent(TOLERANCE)} of the target" if mean is not None and chosen.hits else ""
        near += (
            f"; {percent(share)} of its bytes are {'then ' if chosen is not first else ''}in files that no rewrite takes for small"
            if share is not None
            else ""
        )
        found.append(f"A large commit of {size(chosen.size_in_bytes)} writes {now}{near}.")
    return found


def made(written: Written) -> str:
    """``4 files of 1.2 MiB``."""
    mean = written.mean_bytes
    return f"{count(written.files, 'file')} of {size(mean)}" if mean is not None else "no data file"


def interval(facts: TableFacts, rhythm: Cadence, after: Written, wanted: int) -> str:
    """A sentence on commits that are too small for any setting, with what would be enough."""
    each = after.size_in_bytes / max(after.partitions, 1)
    largest = max((g.size_in_bytes for g in facts.groups if g.kind.value == "data"), default=0)
    said = f"A usual commit brings {size(each)} to a partition, so no setting makes a file of {size(facts.target_bytes)}"
    if largest < facts.target_bytes and not facts.default_spec.is_unpartitioned:
        return f"{said}, and the largest partition has no more than {size(largest)} in all: partition more coarsely, or compact each partition into one file (02_compact)."
    gap = 1 / rhythm.commits_per_day * _DAY_MS if rhythm.commits_per_day else None
    how = f": one commit every {span(gap * wanted)} instead of every {span(gap)}" if gap else ""
    return f"{said}; {wanted:,} such commits in one would{how}. Commit less often, or compact (02_compact)."


_HEAD = ("files", "fewest", "mean", "smallest", "largest", "well-sized bytes", "tasks")


def _row(written: Written) -> tuple[str, ...]:
    return (
        f"{written.files:,}",
        f"{written.fewest:,}",
        "–" if written.mean_bytes is None else size(written.mean_bytes),
        "–" if written.min_bytes is None else size(written.min_bytes),
        "–" if written.max_bytes is None else size(written.max_bytes),
        "–" if written.well_sized_share is None else percent(written.well_sized_share),
        "–" if written.shuffle is None else f"{written.shuffle.tasks:,}",
    )


def _ratio(written: Written) -> str:
    return "–" if written.ratio is None else f"{written.ratio:.2f}"


def _sick(before: Until | None, after: Until | None) -> list[str]:
    if before is None:
        return []
    if before.visits is None:
        return ["A usual commit leaves no small file, so the table stays well."]
    said = f"At the present cadence a partition has enough small files for a rewrite after {_until(before)}"
    return [f"{said}; as advised after {_until(after)}." if after is not None and after != before else f"{said}."]


def _until(until: Until) -> str:
    if until.visits is None:
        return "no number of commits"
    days = f", in {span(until.days * _DAY_MS)}" if until.days is not None else ""
    return f"{count(until.visits, 'commit')} to it{days}"


def _figures(written: Written | None) -> dict[str, Any]:
    if written is None:
        return {}
    return {**asdict(written), "mean_bytes": written.mean_bytes, "ratio": written.ratio, "hits": written.hits}
