"""The chain of settings from the target size to the files that come of it. Pure.

Source: ``SparkWriteConf`` (``dataAdvisoryPartitionSize``, ``deleteAdvisoryPartitionSize``) and
``SparkCompressionUtil`` of Iceberg 1.12, ``CoalesceShufflePartitions`` and
``OptimizeSkewInRebalancePartitions`` of Spark 4.1.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from icekit.engine.cluster import Cluster
from icekit.errors import ParameterError
from icekit.facts.model import TableFacts
from icekit.tune.in_force import InForce, in_force
from icekit.units import count, size

PROPERTY = "write.spark.advisory-partition-size-bytes"
ICEBERG_SESSION = "spark.sql.iceberg.advisory-partition-size"
SPARK_ADVISORY = "spark.sql.adaptive.advisoryPartitionSizeInBytes"
DISTRIBUTION_SESSION = "spark.sql.iceberg.distribution-mode"
_CODEC_SESSION = "spark.sql.iceberg.compression-codec"
_MIB = 2**20
# Files that Iceberg expects of one task, whatever the target says (SparkWriteConf).
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
#: Settings of a session that the chain rests on, with Spark's defaults.
SESSION: Mapping[str, str | None] = {
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
    """What decides how large a task of a write is, and so its files; bytes throughout.

    ``advisory`` holds who overrides whom, with the default worked out; ``ratio`` is Iceberg's guess of
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
        """The advisory size in force: shuffle bytes that a task is to read."""
        return spark_bytes(self.advisory.value or "0")

    @property
    def is_asked(self) -> bool:
        """Tell whether the advisory size is used at all: rows are shuffled, and adaptive execution is on."""
        return self.adaptive and self.mode != "none"

    @property
    def file_bytes(self) -> int | None:
        """The file that one full task gives if the ratio is right; None where the advisory size is not asked for."""
        return min(self.target_bytes, int(self.advisory_bytes / self.ratio)) if self.is_asked else None

    def task_bytes(self, shuffled: int) -> int:
        """The shuffle bytes of a task when so many are shuffled and coalesced: every core gets a task before one is full."""
        if not (self.adaptive and self.coalesces):
            return max(1, shuffled // max(self.shuffle_partitions, 1))
        if not self.parallelism_first:
            return self.advisory_bytes
        return min(self.advisory_bytes, max(-(-shuffled // max(self.cluster.cores, 1)), self.min_partition_bytes))

    def rows(self) -> tuple[tuple[str, str, str], ...]:
        """The chain for people: what, its value, where it comes from or what it does."""
        lost = "; it overrides " + ", ".join(f"{link.where} {link.name}" for link in self.advisory.overridden)
        guessed = f"{self.shuffle_codec} shuffle → {self.codec.value} files: Iceberg guesses {self.ratio:g} bytes of shuffle a byte of file"
        found = [
            ("target file size", size(self.target_bytes), "the writer begins another file there"),
            ("distribution mode", self.mode, "no shuffle: each task writes what it has" if self.mode == "none" else "rows are shuffled"),
            ("advisory size", size(self.advisory_bytes), self.advisory.origin + (lost if self.advisory.overridden else "")),
            ("ratio", f"{self.ratio:g}", guessed),
            ("Spark's advisory size", size(self.spark_advisory_bytes), self._of_spark()),
            ("adaptive execution", "on" if self.adaptive else "off", self._of_adaptive()),
            ("cores and memory", f"{size(self.cluster.task_memory_bytes)} a task", self.cluster.source),
        ]
        gives = self.file_bytes
        why = "advisory size ÷ ratio, at most the target" if gives is not None else "the advisory size is not asked for"
        return (*found, ("file of a full task", "–" if gives is None else size(gives), why))

    def _of_spark(self) -> str:
        if self.advisory.value is not None and self.advisory.origin.startswith("max("):
            return f"{SPARK_ADVISORY}; only the smallest that Iceberg asks for"
        return f"{SPARK_ADVISORY}; Iceberg's overrides it"

    def _of_adaptive(self) -> str:
        if not self.adaptive:
            return (
                f"the advisory size does nothing; each shuffle has {count(self.shuffle_partitions, 'task')} (spark.sql.shuffle.partitions)"
            )
        said = "large tasks are split" if self.splits else "large tasks stay whole (optimizeSkewsInRebalancePartitions is off)"
        if not self.coalesces:
            return f"{said}; small ones are not united (coalescePartitions.enabled is false)"
        if self.parallelism_first:
            return f"{said}; small ones are united while each of {count(self.cluster.cores, 'core')} has one (parallelismFirst)"
        return f"{said}; small ones are united up to the advisory size"


def chain(
    facts: TableFacts,
    session: Mapping[str, str | None],
    cluster: Cluster,
    *,
    operation: str = "append",
    mode: str,
    options: Mapping[str, str] | None = None,
) -> Chain:
    """Put the chain together for an operation; ``session`` are its settings (None: not set), ``options`` those of the write.

    Only a merge-on-read DELETE writes delete files alone; UPDATE and MERGE ask for the size of data files.
    """
    given = options or {}
    conf = {**SESSION, **{k: v for k, v in session.items() if v is not None}}
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
        operation,
        facts.int_setting("write.delete.target-file-size-bytes") if deletes else facts.target_bytes,
        mode,
        advisory,
        own,
        expected,
        codec,
        shuffle_codec,
        ratio,
        _is_on(conf["spark.sql.adaptive.enabled"]),
        _is_on(conf["spark.sql.adaptive.coalescePartitions.enabled"]),
        _is_on(conf["spark.sql.adaptive.coalescePartitions.parallelismFirst"]),
        spark_bytes(conf["spark.sql.adaptive.coalescePartitions.minPartitionSize"] or "1MB"),
        _is_on(conf["spark.sql.adaptive.optimizeSkewsInRebalancePartitions.enabled"]),
        int(conf["spark.sql.shuffle.partitions"] or 200),
        cluster,
    )


def compression_ratio(shuffle_codec: str, codec: str, file_format: str = "parquet") -> float:
    """Iceberg's guess of shuffle bytes for each byte of a data file."""
    if file_format not in {"parquet", "orc"}:
        # Rows in Avro are about as large as rows in a shuffle; Iceberg tells some codecs apart.
        return 1.0
    return _RATIOS.get((shuffle_codec.lower(), codec.lower()), _UNKNOWN_RATIO)


def spark_bytes(text: str) -> int:
    """Bytes of a size as Spark's settings have it: ``64MB``, ``64m``, ``67108864b``, ``67108864``; all binary."""
    found = _BYTES.fullmatch(text.strip())
    if not found:
        raise ParameterError(f"{text!r} is no size as Spark writes one; set it to bytes, or to something like 64m.")
    return int(found[1]) * int(1024 ** " kmgtp".index(found[2].lower() or " "))


def _is_on(value: str | None) -> bool:
    return (value or "").lower() == "true"
