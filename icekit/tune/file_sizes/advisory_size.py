"""Follow the chain of settings from the target size to the files, try other advisory sizes, and advise one."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from icekit.engine.cluster import Cluster
from icekit.errors import ParameterError
from icekit.facts.metadata import ROW_GROUP, TARGET
from icekit.facts.model import TableFacts
from icekit.sandbox.trial import Sandbox, Trial
from icekit.sql import set_properties, set_session
from icekit.tune.card import OPTION, SESSION, Advice, InForce, in_force, overriding, to_set
from icekit.tune.file_sizes.written import TOLERANCE, TrialRows, Written, write
from icekit.units import count, percent, raised, size

# --- From what a trial wrote to an advisory size. Pure
#
# A task's rows become one file when they fit under the size at which the writer begins another; a little more and
# they become a full file and a sliver. So the size is either below that, or several times as large, so that
# slivers do not matter.


#: Room under the size at which the writer rolls: adaptive execution packs map outputs up to the advisory size, never beyond.
HEADROOM = 0.97
#: The same if that was too little, because ratios differ from task to task.
MORE_ROOM = 0.9
#: Files per task if one alone is not possible: with more files, the small last one matters less, but there are fewer tasks.
SEVERAL = (4, 8)
#: If this share of the tasks left a sliver, more room is needed.
_SLIVERS = 0.1
#: The most sizes that are tried.
_TRIES = 4
#: Two ratios that differ by no more than this are the same.
_SAME = 0.05
_STEP = 2**20


@dataclass(frozen=True, slots=True)
class SizeCandidate:
    """An advisory size to try, in bytes, for the target it was computed with."""

    size_in_bytes: int
    why: str


def rolled_bytes(tried: Sequence[Written]) -> int:
    """The size at which the writer starts another file: the largest file near the target, otherwise the target itself.

    It is below the target, because the open row group counts uncompressed (``ParquetWriter.length``).
    """
    target = tried[-1].target_bytes
    near = [
        w.max_bytes for w in tried if w.max_bytes is not None and w.max_bytes >= (1 - 2 * TOLERANCE) * target and w.files > w.partitions
    ]
    return min(max(near, default=target), target)


def next_candidate(tried: Sequence[tuple[int | None, Written]]) -> SizeCandidate | None:
    """The advisory size to try after those tried (None: the size in force); None if there is no better guess.

    First one file per task with the measured ratio, then the same with the ratio of that trial, then
    several files per task.
    """
    shuffled = [w for _, w in tried if w.ratio]
    sizes = [advisory for advisory, _ in tried if advisory is not None]
    if not shuffled or len(sizes) == _TRIES or any(w.hits for _, w in tried) or (not sizes and shuffled[-1].is_fine):
        return None
    last = shuffled[-1]
    ratio, target = last.ratio or 0.0, last.target_bytes
    rolled = rolled_bytes(shuffled)
    slivers = bool(sizes) and last.shuffle is not None and last.files > (1 + _SLIVERS) * max(last.shuffle.tasks, last.partitions)
    room = MORE_ROOM if slivers else HEADROOM
    one = rounded(room * rolled * ratio)
    if not any(abs(one / other - 1) <= _SAME for other in sizes):
        measured = (
            f"{ratio:.2f} bytes of shuffle per byte of file, and the writer starts a new file at {percent(rolled / target)} of the target"
        )
        return SizeCandidate(
            one, f"one file per task: {measured}" + (", with more room because some tasks wrote a tiny second file" if slivers else "")
        )
    for files in SEVERAL:
        several = rounded(files * target * ratio)
        if several > max(sizes) * (1 + _SAME):
            return SizeCandidate(several, f"{files} files per task, cut by the writer, because fewer files per task did not work")
    return None


def best(tried: Sequence[tuple[int | None, Written]]) -> tuple[int | None, Written]:
    """The best one: within the tolerance, then with the fewest files beyond the fewest possible, then the one tried first."""
    return min(tried, key=lambda pair: (not pair[1].hits, round(_excess(pair[1]), 2)))


def _excess(written: Written) -> float:
    if written.enough_mean is not None:
        return abs(written.enough_mean / written.target_bytes - 1)
    return max(0.0, written.files / max(written.fewest, 1) - 1)


def rounded(size_in_bytes: float) -> int:
    """A size to write into a property: whole MiB from 16 MiB, otherwise KiB with three significant binary digits."""
    step = _STEP if size_in_bytes >= 16 * _STEP else 2**14 if size_in_bytes >= 2**20 else 2**10
    return max(1, int(size_in_bytes // step)) * step


def scaled(advisory: int, tried_at: int, target: int) -> int:
    """An advisory size found with a smaller target, scaled to the table's own target."""
    return advisory if tried_at == target else rounded(advisory * target / tried_at)


def spill_limit(written: Written, task_memory_bytes: int) -> int | None:
    """The largest advisory size whose rows a task sorts in memory; None if nothing was shuffled."""
    if written.shuffle is None or not written.shuffle.row_bytes:
        return None
    return int(task_memory_bytes * written.shuffle.planned_bytes / written.shuffle.row_bytes)


# --- The chain of settings from the target size to the resulting files. Pure
#
# Source: ``SparkWriteConf`` (``dataAdvisoryPartitionSize``, ``deleteAdvisoryPartitionSize``) and
# ``SparkCompressionUtil`` of Iceberg 1.12, ``CoalesceShufflePartitions`` and
# ``OptimizeSkewInRebalancePartitions`` of Spark 4.1.


PROPERTY = "write.spark.advisory-partition-size-bytes"
ICEBERG_SESSION = "spark.sql.iceberg.advisory-partition-size"
SPARK_ADVISORY = "spark.sql.adaptive.advisoryPartitionSizeInBytes"
DISTRIBUTION_SESSION = "spark.sql.iceberg.distribution-mode"
_CODEC_SESSION = "spark.sql.iceberg.compression-codec"
_MIB = 2**20
# The size of file that Iceberg expects from one task, whatever the target is (SparkWriteConf).
DATA_FILE_BYTES, DELETE_FILE_BYTES = 128 * _MIB, 32 * _MIB
_UNKNOWN_RATIO = 2.0
#: Shuffle bytes for each byte of a columnar file, by the codecs of both (SparkCompressionUtil).
_HEAVY, _LIGHT = ("zstd", "gzip", "zlib"), ("snappy", "lz4")
_RATIOS = {
    **{("none", codec): 4.0 for codec in _HEAVY},
    **{("none", codec): 3.0 for codec in _LIGHT},
    **{(shuffle, codec): 3.0 for shuffle in ("lz4", "snappy") for codec in _HEAVY},
    **{(shuffle, codec): 2.0 for shuffle in ("lz4", "snappy") for codec in _LIGHT},
    **{("zstd", codec): 2.0 for codec in _HEAVY},
    **{("zstd", codec): 1.5 for codec in _LIGHT},
}
#: Session settings that the chain depends on, with Spark's defaults.
SESSION_SETTINGS: Mapping[str, str | None] = {
    ICEBERG_SESSION: None,
    DISTRIBUTION_SESSION: None,
    _CODEC_SESSION: None,
    "spark.sql.adaptive.enabled": "true",
    SPARK_ADVISORY: "64MB",
    "spark.sql.adaptive.coalescePartitions.enabled": "true",
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "true",
    "spark.sql.adaptive.coalescePartitions.minPartitionSize": "1MB",
    "spark.sql.adaptive.optimizeSkewsInRebalancePartitions.enabled": "true",
    "spark.sql.shuffle.partitions": "200",
    "spark.shuffle.compress": "true",
    "spark.io.compression.codec": "lz4",
}
_BYTES = re.compile(r"(\d+)\s*([kmgtp]?)i?b?", re.I)


@dataclass(frozen=True, slots=True)
class Chain:
    """What decides the size of a write task, and so of its files; all in bytes.

    ``advisory`` has the order of precedence with the computed default; ``ratio`` is Iceberg's estimate of
    shuffle bytes for each byte of file. ``mode`` is the distribution in force for the operation.
    """

    operation: str
    target_bytes: int
    mode: str
    advisory: InForce
    spark_advisory_bytes: int
    expected_bytes: int
    codec: InForce
    shuffle_codec: str
    ratio: float
    adaptive: bool
    coalesces: bool
    parallelism_first: bool
    min_partition_bytes: int
    splits: bool
    shuffle_partitions: int
    cluster: Cluster

    @property
    def advisory_bytes(self) -> int:
        """The advisory size in force: the shuffle bytes that a task should read."""
        return spark_bytes(self.advisory.value or "0")

    @property
    def is_asked(self) -> bool:
        """Tell whether the advisory size is used: rows are shuffled, and adaptive execution is on."""
        return self.adaptive and self.mode != "none"

    @property
    def file_bytes(self) -> int | None:
        """The size of the file of one full task if the ratio is right; None if the advisory size is not used."""
        return min(self.target_bytes, int(self.advisory_bytes / self.ratio)) if self.is_asked else None

    def task_bytes(self, shuffled: int) -> int:
        """The shuffle bytes of a task if this many are shuffled and coalesced; every core gets a task before one is full."""
        if not (self.adaptive and self.coalesces):
            return max(1, shuffled // max(self.shuffle_partitions, 1))
        if not self.parallelism_first:
            return self.advisory_bytes
        return min(self.advisory_bytes, max(-(-shuffled // max(self.cluster.cores, 1)), self.min_partition_bytes))

    def rows(self) -> tuple[tuple[str, str, str], ...]:
        """The settings as text: name, value, and origin or effect."""
        lost = "; it overrides " + ", ".join(f"{link.where} {link.name}" for link in self.advisory.overridden)
        guessed = (
            f"{self.shuffle_codec} shuffle → {self.codec.value} files: Iceberg assumes {self.ratio:g} bytes of shuffle per byte of file"
        )
        found = [
            ("target file size", size(self.target_bytes), "the writer starts a new file at this size"),
            ("distribution mode", self.mode, "no shuffle: each task writes its own rows" if self.mode == "none" else "rows are shuffled"),
            ("advisory size", size(self.advisory_bytes), self.advisory.origin + (lost if self.advisory.overridden else "")),
            ("shuffle bytes per file byte", f"{self.ratio:g}", guessed),
            ("Spark's advisory size", size(self.spark_advisory_bytes), self._of_spark()),
            ("adaptive execution", "on" if self.adaptive else "off", self._of_adaptive()),
            ("cores and memory", f"{size(self.cluster.task_memory_bytes)} per task", self.cluster.source),
        ]
        gives = self.file_bytes
        why = "advisory size ÷ ratio, at most the target" if gives is not None else "the advisory size is not used"
        return (*found, ("file of a full task", "–" if gives is None else size(gives), why))

    def _of_spark(self) -> str:
        if self.advisory.value is not None and self.advisory.origin.startswith("max("):
            return f"{SPARK_ADVISORY}; the minimum for Iceberg's default"
        return f"{SPARK_ADVISORY}; Iceberg's overrides it"

    def _of_adaptive(self) -> str:
        if not self.adaptive:
            return (
                f"the advisory size has no effect; each shuffle has {count(self.shuffle_partitions, 'task')} (spark.sql.shuffle.partitions)"
            )
        said = "large tasks are split" if self.splits else "large tasks are not split (optimizeSkewsInRebalancePartitions is off)"
        if not self.coalesces:
            return f"{said}; small tasks are not combined (coalescePartitions.enabled is false)"
        if self.parallelism_first:
            return f"{said}; small tasks are combined only while each of {count(self.cluster.cores, 'core')} has one (parallelismFirst)"
        return f"{said}; small tasks are combined up to the advisory size"


def chain(
    facts: TableFacts,
    session: Mapping[str, str | None],
    cluster: Cluster,
    *,
    operation: str = "append",
    mode: str,
    options: Mapping[str, str] | None = None,
) -> Chain:
    """Build the chain for an operation; ``session`` are its settings (None: not set), ``options`` those of the write.

    Only a merge-on-read DELETE writes nothing but delete files; UPDATE and MERGE use the size of data files.
    """
    given = options or {}
    conf = {**SESSION_SETTINGS, **{k: v for k, v in session.items() if v is not None}}
    deletes = operation == "delete" and (facts.setting("write.delete.mode") or "") == "merge-on-read"
    fmt = (facts.setting("write.format.default") or "parquet").lower()
    codec = in_force(
        "compression codec",
        option=("compression-codec", given),
        session=[(_CODEC_SESSION, conf[_CODEC_SESSION])],
        properties=[(f"write.{fmt}.compression-codec", facts.properties.get(f"write.{fmt}.compression-codec"))],
        default=("default", {"orc": "zlib"}.get(fmt, "gzip")),
    )
    shuffle_codec = (conf["spark.io.compression.codec"] or "lz4").lower() if _is_on(conf["spark.shuffle.compress"]) else "none"
    ratio = compression_ratio(shuffle_codec, codec.value or "", fmt)
    own = spark_bytes(conf[SPARK_ADVISORY] or "64MB")
    expected = DELETE_FILE_BYTES if deletes else DATA_FILE_BYTES
    advisory = in_force(
        "advisory partition size",
        option=("advisory-partition-size", given),
        session=[(ICEBERG_SESSION, conf[ICEBERG_SESSION])],
        properties=[(PROPERTY, facts.properties.get(PROPERTY))],
        default=(f"max({size(expected)} × {ratio:g}, Spark's own)", str(max(int(expected * ratio), own))),
    )
    return Chain(
        operation=operation,
        target_bytes=facts.int_setting("write.delete.target-file-size-bytes") if deletes else facts.target_bytes,
        mode=mode,
        advisory=advisory,
        spark_advisory_bytes=own,
        expected_bytes=expected,
        codec=codec,
        shuffle_codec=shuffle_codec,
        ratio=ratio,
        adaptive=_is_on(conf["spark.sql.adaptive.enabled"]),
        coalesces=_is_on(conf["spark.sql.adaptive.coalescePartitions.enabled"]),
        parallelism_first=_is_on(conf["spark.sql.adaptive.coalescePartitions.parallelismFirst"]),
        min_partition_bytes=spark_bytes(conf["spark.sql.adaptive.coalescePartitions.minPartitionSize"] or "1MB"),
        splits=_is_on(conf["spark.sql.adaptive.optimizeSkewsInRebalancePartitions.enabled"]),
        shuffle_partitions=int(conf["spark.sql.shuffle.partitions"] or 200),
        cluster=cluster,
    )


def compression_ratio(shuffle_codec: str, codec: str, file_format: str = "parquet") -> float:
    """Iceberg's estimate of shuffle bytes for each byte of a data file."""
    if file_format not in {"parquet", "orc"}:
        # Rows in Avro are about as large as rows in a shuffle; Iceberg distinguishes some codecs.
        return 1.0
    return _RATIOS.get((shuffle_codec.lower(), codec.lower()), _UNKNOWN_RATIO)


def spark_bytes(text: str) -> int:
    """Bytes of a size in the notation of Spark's settings: ``64MB``, ``64m``, ``67108864b``, ``67108864``; all binary."""
    found = _BYTES.fullmatch(text.strip())
    if not found:
        raise ParameterError(f"{text!r} is not a size in Spark's notation; set it to bytes, or to a value such as 64m.")
    return int(found[1]) * int(1024 ** " kmgtp".index(found[2].lower() or " "))


def _is_on(value: str | None) -> bool:
    return (value or "").lower() == "true"


@dataclass(frozen=True, slots=True)
class SizeTrial:
    """Commits of the same rows: ``before`` with the current settings, ``base`` with the advised distribution, then each size tried.

    ``target_bytes`` is the target of these commits: smaller than the table's own if a sample
    has too few files of that size.
    """

    source: TrialRows
    target_bytes: int
    before: Written
    base: Written
    tried: tuple[tuple[SizeCandidate, Written], ...]

    @property
    def chosen(self) -> tuple[SizeCandidate | None, Written]:
        """The size that came closest to the target (None: the one in force), and its result."""
        size_in_bytes, written = best([(None, self.base), *((c.size_in_bytes, w) for c, w in self.tried)])
        return next((c for c, _ in self.tried if c.size_in_bytes == size_in_bytes), None), written


def try_sizes(
    trial: Trial, box: Sandbox, source: TrialRows, *, target_bytes: int, distribution: str | None, advisory_bytes: int
) -> SizeTrial:
    """Write the rows with the current settings, then with ``distribution`` (None: no other), then with each size that the ratio gives.

    ``advisory_bytes`` is the size in force; it is scaled down with a smaller target.
    """
    facts = trial.facts
    now: dict[str, str] = {}
    if target_bytes != facts.target_bytes:
        group = facts.int_setting(ROW_GROUP) * target_bytes // facts.target_bytes
        box.set(set_properties(box.name, {TARGET: str(target_bytes), ROW_GROUP: str(max(group, 1))}))
        now = {ICEBERG_SESSION: str(max(1, advisory_bytes * target_bytes // facts.target_bytes))}
    before = write(box, source, target_bytes, now)
    trial.progress(f"with current settings: {said(before)}")
    under = {DISTRIBUTION_SESSION: distribution} if distribution else {}
    base = write(box, source, target_bytes, {**now, **under}) if under else before
    tried: list[tuple[SizeCandidate, Written]] = []
    with trial.attempt():
        while (candidate := next_candidate([(None, base), *((c.size_in_bytes, w) for c, w in tried)])) is not None:
            written = write(box, source, target_bytes, {**under, ICEBERG_SESSION: str(candidate.size_in_bytes)})
            tried.append((candidate, written))
            trial.progress(f"advisory size {size(candidate.size_in_bytes)}: {said(written)}")
    return SizeTrial(source, target_bytes, before, base, tuple(tried))


def said(written: Written) -> str:
    """The number of files and their mean size, in words."""
    mean = written.enough_mean or written.mean_bytes
    return f"{count(written.files, 'file')}, {size(mean)} on average" if mean is not None else "no file"


# --- From a trial of advisory sizes to what to set, and what limits it. Pure


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
    """The commits of a trial in order: with current settings, with the advised distribution, with each size."""
    found = [SizeStep("now", None, trial.before)]
    if trial.base is not trial.before:
        found.append(SizeStep("advised distribution", None, trial.base))
    return (*found, *(SizeStep(f"advisory size {size(c.size_in_bytes)}", c.size_in_bytes, w) for c, w in trial.tried))


def advise(facts: TableFacts, chain: Chain, mode: str, trial: SizeTrial | None) -> tuple[Advice, ...]:
    """Advice on the advisory size under the distribution mode advised."""
    now = size(chain.advisory_bytes)
    if not chain.adaptive:
        return (_adaptive(chain),)
    if mode == "none":
        return (
            Advice(
                PROPERTY,
                now,
                now,
                "Rows are not shuffled before they are written, so the advisory size is not used, and each task writes a file for the rows that it has read.",
            ),
        )
    if trial is None:
        gives = chain.file_bytes
        said = (
            f"with Iceberg's assumed ratio of {chain.ratio:g}, a full task writes {size(gives)}"
            if gives is not None
            else "no shuffle uses it"
        )
        return (Advice(PROPERTY, now, now, f"Not tried; {said}, and the target is {size(chain.target_bytes)}."),)
    candidate, after = trial.chosen
    base = trial.base
    made = f"{_made(base)}; the target is {size(trial.target_bytes)} and {count(base.fewest, 'file')} would be enough"
    if candidate is None or after.files > (1 - _GAIN) * base.files:
        return (Advice(PROPERTY, now, now, f"{raised(made)}. {_why_not(base, trial)}".strip(), verified=_tried(trial)),)
    value = scaled(candidate.size_in_bytes, trial.target_bytes, facts.target_bytes)
    evidence = f"The size in force, {now} ({chain.advisory.origin}), makes {made}; {candidate.why}."
    decides = chain.advisory.decides
    found = [
        to_set(
            facts,
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
    """The other limits of file sizes, one sentence each."""
    found = []
    if trial is None:
        return ()
    _, after = trial.chosen
    rolled = rolled_bytes([w.written for w in steps(trial)])
    if rolled < (1 - TOLERANCE / 2) * trial.target_bytes:
        found.append(
            f"The writer starts a new file at {size(rolled)}, {percent(rolled / trial.target_bytes)} of the target, because the open row group counts "
            f"uncompressed: a smaller {ROW_GROUP} gives sizes closer to the target."
        )
    if after.shuffle is not None:
        limit = spill_limit(after, chain.cluster.task_memory_bytes)
        if after.shuffle.spilled_bytes:
            found.append(
                f"Sorting spilled {size(after.shuffle.spilled_bytes)} to disk in the trial: give tasks more memory, or executors fewer cores."
            )
        elif limit is not None:
            found.append(
                f"Nothing spilled; a task here sorts up to about {size(limit)} of shuffle in its {size(chain.cluster.task_memory_bytes)} of memory."
            )
        found.append(
            f"{count(after.shuffle.tasks, 'task')} wrote {count(after.files, 'file')} in {count(after.partitions, 'partition')}, because a file never spans partitions."
        )
    if chain.parallelism_first and chain.coalesces and chain.mode == "range":
        found.append(
            f"Under range, a commit is divided among {count(chain.cluster.cores, 'core')} before tasks are full. With more cores, small commits get more files, unless "
            "the job sets spark.sql.adaptive.coalescePartitions.parallelismFirst to false."
        )
    if trial.target_bytes < chain.target_bytes:
        found.append(
            f"Tried with a target of {size(trial.target_bytes)}, because the sample has too few files of {size(chain.target_bytes)}; the advised size is scaled."
        )
    return tuple(found)


def _adaptive(chain: Chain) -> Advice:
    said = (
        f"Without adaptive execution the advisory size has no effect, and each commit of any size has {count(chain.shuffle_partitions, 'task')} "
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
        return f"none of {', '.join(size(c.size_in_bytes) for c, _ in trial.tried)} came closer."
    verdict = (
        "within 15 % of the target"
        if after.enough_mean is not None and after.hits
        else "as few as possible"
        if after.hits
        else "below the target"
    )
    return f"{_made(trial.base)} before, {_made(after)} after, {verdict}."


def _why_not(written: Written, trial: SizeTrial) -> str:
    if written.is_too_few:
        return f"No partition gets more than {size(written.largest_partition_bytes)}, so no setting makes a file of the target size."
    if written.hits:
        return ""
    return "No size that was tried is better." if trial.tried else "There was nothing to try."


def _breaks(facts: TableFacts, chain: Chain, value: int, after: Written) -> str | None:
    found = []
    limit = spill_limit(after, chain.cluster.task_memory_bytes)
    if limit is not None and value > limit:
        found.append(
            f"a task sorts more than the {size(chain.cluster.task_memory_bytes)} of memory it has here and would spill (give tasks more memory, or lower the target)"
        )
    if facts.setting("write.delete.mode") == "merge-on-read":
        found.append("a merge-on-read DELETE uses the same size, although its default is a quarter of the size for data")
    return "; ".join(found) or None
