"""From a trial of advisory sizes to what to set, and what limits it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from icekit.facts.model import TableFacts
from icekit.sql import Identifier, set_session
from icekit.tune.advisory_size.trial import PROPERTY, Chain, SizeTrial, rolled_bytes, scaled, spill_limit
from icekit.tune.advisory_size.written import TOLERANCE, Written
from icekit.tune.answer import OPTION, SESSION, Advice, overriding, to_set
from icekit.units import count, percent, size

#: A change must save this share of the files.
_GAIN = 0.1
_ADAPTIVE = "spark.sql.adaptive.enabled"


@dataclass(frozen=True, slots=True)
class SizeStep:
    """A trial's commit in words, for tables and charts: ``advisory`` is None for the size in force."""

    name: str
    advisory: int | None
    written: Written


def steps(trial: SizeTrial) -> tuple[SizeStep, ...]:
    """The commits of a trial in order: as it is, with the distribution advised, with each size."""
    found = [SizeStep("as it is", None, trial.before)]
    if trial.base is not trial.before:
        found.append(SizeStep("distribution advised", None, trial.base))
    return (*found, *(SizeStep(f"advisory size {size(c.size_in_bytes)}", c.size_in_bytes, w) for c, w in trial.tried))


def advise(table: Identifier, facts: TableFacts, chain: Chain, mode: str, trial: SizeTrial | None) -> tuple[Advice, ...]:
    """Advice on the advisory size under the distribution mode advised; ``table`` is named with its catalog."""
    now = size(chain.advisory_bytes)
    if not chain.adaptive:
        return (_adaptive(chain),)
    if mode == "none":
        return (
            Advice(
                PROPERTY,
                now,
                now,
                "Leave it as it is: rows are not shuffled before they are written, so nobody asks for it, and a task leaves a file for what it has read.",
            ),
        )
    if trial is None:
        gives = chain.file_bytes
        said = f"by Iceberg's guess of {chain.ratio:g} a full task gives {size(gives)}" if gives is not None else "no shuffle asks for it"
        return (Advice(PROPERTY, now, now, f"Not tried; {said}, against a target of {size(chain.target_bytes)}."),)
    candidate, after = trial.chosen
    base = trial.base
    made = f"{_made(base)}, where the target is {size(trial.target_bytes)} and {count(base.fewest, 'file')} would do"
    if candidate is None or after.files > (1 - _GAIN) * base.files:
        return (Advice(PROPERTY, now, now, f"Leave it as it is: {made}. {_why_not(base, trial)}".strip(), verified=_tried(trial)),)
    value = scaled(candidate.size_in_bytes, trial.target_bytes, facts.target_bytes)
    evidence = f"The size in force, {now} ({chain.advisory.origin}), makes {made}; {candidate.why}."
    decides = chain.advisory.decides
    found = [
        to_set(
            table,
            facts.properties,
            {PROPERTY: str(value)},
            current=facts.properties.get(PROPERTY) or f"{now} by {chain.advisory.origin}",
            evidence=evidence,
            verified=_tried(trial),
            breaks=_breaks(facts, chain, value, after),
        )
    ]
    if decides is not None and decides.where in {SESSION, OPTION}:
        found.append(overriding(decides, f"Or set it to {value}."))
    return tuple(found)


def limits(chain: Chain, trial: SizeTrial | None) -> tuple[str, ...]:
    """What bounds the size of files beside the advisory size, a sentence each."""
    found = []
    if trial is None:
        return ()
    _, after = trial.chosen
    rolled = rolled_bytes([w.written for w in steps(trial)])
    if rolled < (1 - TOLERANCE / 2) * trial.target_bytes:
        found.append(
            f"The writer begins another file at {size(rolled)}, {percent(rolled / trial.target_bytes)} of the target, as the open row group counts "
            "uncompressed: a smaller write.parquet.row-group-size-bytes brings it nearer."
        )
    if after.shuffle is not None:
        limit = spill_limit(after, chain.cluster.task_memory_bytes)
        if after.shuffle.spilled_bytes:
            found.append(
                f"Sorting spilled {size(after.shuffle.spilled_bytes)} to disk in the trial: give tasks more memory, or fewer cores an executor."
            )
        elif limit is not None:
            found.append(
                f"Nothing spilled; a task here sorts up to about {size(limit)} of shuffle in its {size(chain.cluster.task_memory_bytes)} of memory."
            )
        found.append(
            f"{count(after.shuffle.tasks, 'task')} wrote {count(after.files, 'file')} in {count(after.partitions, 'partition')}: a file never spans partitions."
        )
    if chain.parallelism_first and chain.coalesces and chain.mode == "range":
        found.append(
            f"Under range a commit is cut for {count(chain.cluster.cores, 'core')} before tasks are full; with more cores small commits get more files, unless "
            "the job sets spark.sql.adaptive.coalescePartitions.parallelismFirst to false."
        )
    if trial.target_bytes < chain.target_bytes:
        found.append(
            f"Tried at a target of {size(trial.target_bytes)}, as the sample holds too few files of {size(chain.target_bytes)}; the size is scaled."
        )
    return tuple(found)


def _adaptive(chain: Chain) -> Advice:
    said = (
        f"Without adaptive execution the advisory size does nothing, and each commit has {count(chain.shuffle_partitions, 'task')} whatever its size "
        "(spark.sql.shuffle.partitions)."
    )
    return Advice(_ADAPTIVE, "false", "true", said, set_session(_ADAPTIVE, "true"), undo=set_session(_ADAPTIVE, "false"))


def _made(written: Written) -> str:
    mean = written.enough_mean or written.mean_bytes
    return f"{count(written.files, 'file')} of {size(mean)} on average" if mean is not None else "no file"


def _tried(trial: SizeTrial) -> str | None:
    if not trial.tried:
        return None
    candidate, after = trial.chosen
    if candidate is None:
        return f"none of {', '.join(size(c.size_in_bytes) for c, _ in trial.tried)} came nearer."
    verdict = (
        "within 15 % of the target"
        if after.enough_mean is not None and after.hits
        else "as few as can be"
        if after.hits
        else "short of the target"
    )
    return f"{_made(trial.base)} before, {_made(after)} after, {verdict}."


def _why_not(written: Written, trial: SizeTrial) -> str:
    if written.is_too_few:
        return f"No partition of it gets more than {size(written.largest_partition_bytes)}, so no setting makes a file of the target size."
    if written.hits:
        return ""
    return "No size that was tried did better." if trial.tried else "There was nothing to try."


def _breaks(facts: TableFacts, chain: Chain, value: int, after: Written) -> str | None:
    found = []
    limit = spill_limit(after, chain.cluster.task_memory_bytes)
    if limit is not None and value > limit:
        found.append(
            f"a task sorts more than the {size(chain.cluster.task_memory_bytes)} of memory it has here and would spill (give tasks more memory, or lower the target)"
        )
    if facts.setting("write.delete.mode") == "merge-on-read":
        found.append("a merge-on-read DELETE asks for the same size, where its default is a quarter of that of data")
    return "; ".join(found) or None
