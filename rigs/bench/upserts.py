"""Make upsert tables as Flink leaves them, once, and copies of their metadata to do measured work
on.

Each commit adds one data file and one equality delete file to every partition, of one sequence
number: the rows upserted, and their keys alone. About a quarter of the delete rows of a whole
history match nothing, because their keys are new.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from icekit.common.errors import IcekitError
from icekit.common.sql import identifier
from icekit.health.facts.metadata_file import load_metadata
from icekit.rows.proof.fingerprint import Fingerprint, fingerprints_by_key, row_hash
from rigs.soak.table import clone, desk, folder, forget

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from icekit.api import Lake

NAMESPACE = "upserts"
COLUMNS = "key STRING, p INT, amount DOUBLE, updated_at TIMESTAMP, note STRING, n BIGINT"
#: Columns that identify a row, by type of key; each works alone, so any of them may be the
# equality key.
KEYS = {"string": ("key",), "bigint": ("n",), "composite": ("n", "key")}
# (1 - e**-4) / 4: a history that upserts each key four times has a quarter of new keys.
UPSERTS_PER_KEY = 4
SEED = 7
# Changes with what is made here, so that tables of an older one are made again.
_VERSION = "2"
_COMPLETE = "icekit.bench.complete"
_EXPECTED = "icekit.bench.expected"
_SCHEMA = {
    "key": pa.string(),
    "p": pa.int32(),
    "amount": pa.float64(),
    "updated_at": pa.timestamp("us", tz="UTC"),
    "note": pa.string(),
    "n": pa.int64(),
}
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
_PREFIX = np.frombuffer(b"customer-", np.uint8)
_KEY_DIGITS, _NOTE_DIGITS = 31, 20


@dataclass(frozen=True, slots=True)
class Upserts:
    """The history of one table: what is in it follows from these figures alone.

    ``key_space`` is the number of keys of a partition; each commit upserts ``rows`` of them in
    each partition. ``keys`` are the equality columns, among ``COLUMNS``.
    """

    partitions: int = 6
    commits: int = 60
    rows: int = 50_000
    key_space: int = 0
    keys: tuple[str, ...] = KEYS["string"]
    format_version: int = 2
    seed: int = SEED

    @property
    def keys_per_partition(self) -> int:
        """The key space, or the one that makes a quarter of the delete rows match nothing."""
        return self.key_space or max(self.rows, self.commits * self.rows // UPSERTS_PER_KEY)

    @property
    def row_count(self) -> int:
        """Rows written, and as many delete rows."""
        return self.partitions * self.commits * self.rows

    @property
    def default_name(self) -> str:
        """A name that tells the table from those of other figures."""
        parts = f"p{self.partitions}_c{self.commits}_r{self.rows}_k{self.keys_per_partition}_{'_'.join(self.keys)}_v{self.format_version}"
        return parts if self.seed == SEED else f"{parts}_s{self.seed}"

    def left(self, partition: int) -> Iterator[pa.Table]:
        """The rows that are left of a partition when every upsert has replaced its key's older
        row.
        """
        seen = np.zeros(self.keys_per_partition, bool)
        for commit in reversed(range(self.commits)):
            rows = self.batch(commit, partition)
            places = rows["n"].to_numpy() - partition * self.keys_per_partition
            yield rows.filter(pa.array(~seen[places]))
            seen[places] = True

    def batch(self, commit: int, partition: int) -> pa.Table:
        """The rows that a commit upserts in a partition, each key once, in no order."""
        random = np.random.default_rng((self.seed, commit, partition))
        numbers = (
            random.choice(self.keys_per_partition, self.rows, replace=False)
            + partition * self.keys_per_partition
        )
        moments = (
            1_700_000_000_000_000 + commit * 60_000_000 + random.integers(0, 60_000_000, self.rows)
        )
        columns = {
            "key": customer_keys(numbers),
            "p": np.full(self.rows, partition, np.int32),
            "amount": np.round(random.random(self.rows) * 1000, 2),
            "updated_at": pa.array(moments, pa.int64()).cast(_SCHEMA["updated_at"]),
            "note": _texts(
                _digits(random.integers(0, 2**64, (self.rows, 2), np.uint64), _NOTE_DIGITS)
            ),
            "n": numbers,
        }
        fields = [
            pa.field(name, kind, metadata={"PARQUET:field_id": str(i)})
            for i, (name, kind) in enumerate(_SCHEMA.items(), 1)
        ]
        return pa.table(columns, pa.schema(fields))


def make_upserts(
    lake: Lake,
    table_name: str = "",
    *,
    partitions: int = 6,
    commits: int = 60,
    rows: int = 50_000,
    key_space: int = 0,
    keys: Sequence[str] = KEYS["string"],
    format_version: int = 2,
    seed: int = SEED,
) -> str:
    """Make an upsert table in the embedded lake unless it is there; its full name comes back.

    It lies in the namespace ``upserts``, under ``table_name`` or a name made of the figures.
    """
    history = Upserts(partitions, commits, rows, key_space, tuple(keys), format_version, seed)
    name = table_name.rpartition(".")[2] or history.default_name
    if not _is_complete(lake, name, history):
        _make(lake, name, history)
    return f"{NAMESPACE}.{name}"


@contextlib.contextmanager
def copied(lake: Lake, table: str, suffix: str = "copy") -> Iterator[str]:
    """A second table over the same files; what is written to it goes to a folder that is removed
    afterwards.

    It may be rewritten: it has ``gc.enabled=false``, and the files of the first stay.
    """
    namespace, _, template = table.rpartition(".")
    name = f"{template}_{suffix}"
    try:
        yield clone(lake, name, namespace, template)
    finally:
        forget(lake, name, namespace)


def expected(lake: Lake, table: str) -> Fingerprint:
    """The fingerprint of the rows that a table must show, worked out from its history without
    reading a delete.
    """
    count, value = _properties(lake, table.rpartition(".")[2])[_EXPECTED].split()
    return Fingerprint(int(count), int(value, 16))


def customer_keys(numbers: NDArray[Any]) -> pa.Array:
    """Strings of 40 characters, ``customer-`` and hexadecimal digits, different for different
    numbers and in no order.
    """
    mixed = np.stack(
        [_mix(numbers.astype(np.uint64)), _mix(numbers.astype(np.uint64) ^ np.uint64(0x5DEECE66D))],
        axis=1,
    )
    prefix = np.broadcast_to(_PREFIX, (len(numbers), len(_PREFIX)))
    return _texts(np.concatenate([prefix, _digits(mixed, _KEY_DIGITS)], axis=1))


def _mix(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64: scrambles 64 bits, and no two numbers to the same."""
    z = (numbers + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def _digits(words: NDArray[np.uint64], length: int) -> NDArray[np.uint8]:
    """The first hexadecimal digits of each row of words."""
    octets = np.ascontiguousarray(words).view(np.uint8)
    return np.stack([_HEX[octets >> 4], _HEX[octets & 15]], axis=2).reshape(len(words), -1)[
        :, :length
    ]


def _texts(letters: NDArray[np.uint8]) -> pa.Array:
    """Strings of equal length out of a row of letters each."""
    count, length = letters.shape
    offsets = np.arange(0, (count + 1) * length, length, dtype=np.int32)
    return pa.StringArray.from_buffers(
        count, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(letters))
    )


def _is_complete(lake: Lake, name: str, history: Upserts) -> bool:
    try:
        return _properties(lake, name).get(_COMPLETE) == _mark(history)
    except IcekitError:
        return False


def _properties(lake: Lake, name: str) -> dict[str, str]:
    found: dict[str, str] = load_metadata(lake.tables.source((NAMESPACE, name)))["properties"]
    return found


def _mark(history: Upserts) -> str:
    return f"{_VERSION}: {history}"


def _make(lake: Lake, name: str, history: Upserts) -> None:
    """Write the files in threads, and commit them in order as they come."""
    started = time.monotonic()
    spark = lake.spark
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {identifier(lake.name, NAMESPACE)}")
    desk(lake, name, NAMESPACE).start()
    sql_name = identifier(lake.name, NAMESPACE, name)
    spark.sql(
        f"CREATE TABLE {sql_name} ({COLUMNS}) USING iceberg PARTITIONED BY (p) TBLPROPERTIES "
        f"('format-version' = '{history.format_version}')"
    )
    jvm: Any = spark._jvm
    table = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, sql_name)
    home = folder(lake, name, NAMESPACE) / "data"
    for partition in range(history.partitions):
        (home / f"p={partition}").mkdir(parents=True)
    committer = _Committer(spark, table, history.keys)
    with ThreadPoolExecutor(os.cpu_count() or 2) as pool:
        waiting: deque[list[Future[tuple[str, Path, Path]]]] = deque()
        for commit in range(history.commits):
            waiting.append(
                [
                    pool.submit(_write, home, history, commit, partition)
                    for partition in range(history.partitions)
                ]
            )
            # Not all at once: a batch is held in memory until its files are written.
            if len(waiting) > 2:
                committer.commit([part.result() for part in waiting.popleft()])
                _say(name, commit - 1, history.commits, started)
        while waiting:
            committer.commit([part.result() for part in waiting.popleft()])
    _say(name, history.commits, history.commits, started)
    print(file=sys.stderr)
    print_ = _print_of_left(spark, home.with_name("left"), history)
    told = f"{print_.row_count} {print_.hash_sum:x}"
    table.updateProperties().set(_EXPECTED, told).set(_COMPLETE, _mark(history)).commit()
    spark.sql(f"REFRESH TABLE {sql_name}")


def _print_of_left(spark: Any, home: Path, history: Upserts) -> Fingerprint:
    """Fingerprint the rows that are left, by way of plain Parquet files that Iceberg knows nothing
    of.
    """

    def write(partition: int) -> None:
        with pq.ParquetWriter(home / f"{partition}.parquet", pa.schema(_SCHEMA)) as writer:
            for rows in history.left(partition):
                writer.write_table(rows.cast(writer.schema))

    home.mkdir()
    try:
        with ThreadPoolExecutor(os.cpu_count() or 2) as pool:
            list(pool.map(write, range(history.partitions)))
        rows = spark.read.parquet(str(home))
        return fingerprints_by_key(rows.selectExpr(f"{row_hash(rows.schema)} AS h"))[()]
    finally:
        shutil.rmtree(home)


def _write(home: Path, history: Upserts, commit: int, partition: int) -> tuple[str, Path, Path]:
    """Write a data file and its equality delete file; comes back with the partition's path."""
    rows = history.batch(commit, partition)
    path = f"p={partition}"
    data, deletes = (home / path / f"{commit:05}-{kind}.parquet" for kind in ("data", "deletes"))
    for place, table in ((data, rows), (deletes, rows.select(list(history.keys)))):
        # As Parquet for Java does, which gives up a dictionary of unique values.
        pq.write_table(table, place, compression="zstd", compression_level=3, use_dictionary=["p"])
    return path, data, deletes


class _Committer:
    """Commits data and equality delete files with their bounds, through the API that Flink uses."""

    def __init__(self, spark: Any, table: Any, keys: Sequence[str]) -> None:
        self._iceberg = spark._jvm.org.apache.iceberg
        self._table = table
        self._metrics = self._iceberg.MetricsConfig.forTable(table)
        gateway = spark.sparkContext._gateway
        self._key_ids = gateway.new_array(gateway.jvm.int, len(keys))
        for place, key in enumerate(keys):
            self._key_ids[place] = table.schema().findField(key).fieldId()

    def commit(self, parts: Sequence[tuple[str, Path, Path]]) -> None:
        """Commit one checkpoint: files of one sequence number."""
        delta = self._table.newRowDelta()
        for partition, data, deletes in parts:
            delta.addRows(
                self._file(self._iceberg.DataFiles.builder(self._table.spec()), partition, data)
            )
            builder = self._iceberg.FileMetadata.deleteFileBuilder(
                self._table.spec()
            ).ofEqualityDeletes(self._key_ids)
            delta.addDeletes(self._file(builder, partition, deletes))
        delta.commit()

    def _file(self, builder: Any, partition: str, path: Path) -> Any:
        written = self._table.io().newInputFile(str(path))
        metrics = self._iceberg.parquet.ParquetUtil.fileMetrics(written, self._metrics)
        return (
            builder.withInputFile(written)
            .withFormat("parquet")
            .withPartitionPath(partition)
            .withMetrics(metrics)
            .build()
        )


def _say(name: str, done: int, of: int, started: float) -> None:
    print(
        f"\rmaking {name}: {done:,} of {of:,} commits, {time.monotonic() - started:.0f} s",
        end="",
        file=sys.stderr,
        flush=True,
    )
