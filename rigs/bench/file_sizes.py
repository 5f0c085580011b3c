"""Four kinds of data in three codecs: how near the target the files come, before and after, and what the ratio is."""

from __future__ import annotations

import os
from collections.abc import Sequence

import icekit
from icekit.api import Lake
from icekit.sandbox.trial import Budget, Trial
from icekit.sql import identifier, literal
from icekit.tune.file_sizes.advisory_size import PROPERTY, SizeTrial, try_sizes
from icekit.tune.file_sizes.written import aim, large
from icekit.units import size
from rigs.bench.measure import Others, show

SPARK_CONF = "spark.driver.memory=2g"
NAMESPACE = "bench_sizes"
TARGET, ROW_GROUP = 2**19, 2**16
FILES = 18
# What Iceberg asks for by default at 512 MB, lz4 to zstd, taken down with the target.
DEFAULT_ADVISORY = 384 * TARGET // 512
#: Columns of each kind, of the row's number ``id``, and the rows that a file of the target size takes, roughly.
KINDS = {
    "numbers": ("xxhash64(id) AS a, cast(id % 100000 AS int) AS b, id * 0.37 AS c", 32_000),
    "low-cardinality strings": (
        "concat('state-', xxhash64(id) % 8) AS a, concat('country-', xxhash64(id, 1) % 150) AS b, concat('carrier-', xxhash64(id, 2) % 16) AS c",
        300_000,
    ),
    "long URLs": (
        "concat('https://www.example.org/shop/', xxhash64(id) % 5000, '/item/', hex(xxhash64(id, 1)), '?session=', hex(xxhash64(id, 2)), "
        "'&from=newsletter&page=', id % 40) AS url",
        26_000,
    ),
    "nested": (
        "named_struct('k', xxhash64(id) % 1000, 'at', named_struct('x', id * 0.5D, 'y', concat('p', id % 700))) AS s, "
        "transform(sequence(1, 1 + cast(pmod(xxhash64(id, 3), 5) AS int)), x -> x * (id % 90)) AS l",
        56_000,
    ),
}
CODECS = ("zstd", "snappy", "gzip")


def run(sizes: Sequence[int], *, long: bool) -> None:
    """Run on the bench lake; ``sizes`` are of other benches' tables, ``long`` adds tables of one more codec."""
    del sizes
    os.environ["ICEKIT_SPARK_CONF"] = f"{os.environ.get('ICEKIT_SPARK_CONF', '')} {SPARK_CONF}"
    lake = icekit.connect()
    rows = []
    try:
        lake.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {identifier(lake.name, NAMESPACE)}")
        for kind in KINDS:
            for codec in (*CODECS, *(("uncompressed",) if long else ())):
                with Others() as others:
                    row = _row(kind, codec, measure(lake, NAMESPACE, kind, codec))
                rows.append((*row, others))
                print("  " + ", ".join(row), flush=True)
    finally:
        lake.close()
    head = (
        "data",
        "codec",
        "rows in partitions of",
        "before",
        "mean",
        "after",
        "mean",
        "advisory size",
        "ratio",
        "trials",
        "within 15 %",
        "others",
    )
    show(f"Mean file size for a target of {size(TARGET)}", head, rows)


def measure(
    lake: Lake, namespace: str, kind: str, codec: str, *, target: int = TARGET, files: int = FILES, partitioned: bool = True
) -> SizeTrial:
    """Make a table of a kind of data, and try sizes on a clone of it; the table is dropped afterwards."""
    columns, per_file = KINDS[kind]
    name = (namespace, f"{kind.split()[0].replace('-', '_')}_{codec}".lower())
    full = identifier(*lake.sql_name(name))
    properties = {
        "write.target-file-size-bytes": str(target),
        "write.parquet.row-group-size-bytes": str(ROW_GROUP * target // TARGET),
        "write.parquet.compression-codec": codec,
        PROPERTY: str(DEFAULT_ADVISORY * target // TARGET),
    }
    pairs = ", ".join(f"{literal(k)} = {literal(v)}" for k, v in properties.items())
    by = "PARTITIONED BY (p)" if partitioned else ""
    count = per_file * files * target // TARGET
    try:
        lake.spark.sql(
            f"CREATE OR REPLACE TABLE {full} USING iceberg {by} TBLPROPERTIES ({pairs}) AS "
            f"SELECT id, cast(id * 10 / {count} > 9 AS int) AS p, {columns} FROM range(0, {count}, 1, 8)"
        )
        facts = lake.observe(name, collector="spark")
        at = aim(facts, 2**30)
        source = large(facts, f"{full}.data_files", target_bytes=at, sample_bytes=2**30)
        assert source is not None
        trial = Trial(lake=lake, facts=facts, budget=Budget(600), sample_bytes=2**30, progress=lambda _: None)
        with trial.sandbox() as box:
            return try_sizes(trial, box, source, target_bytes=at, distribution=None, advisory_bytes=DEFAULT_ADVISORY)
    finally:
        lake.spark.sql(f"DROP TABLE IF EXISTS {full} PURGE")


def _row(kind: str, codec: str, trial: SizeTrial) -> tuple[str, ...]:
    chosen, after = trial.chosen
    mean = after.enough_mean
    near = "too few data" if mean is None else f"{mean / trial.target_bytes - 1:+.0%} {'yes' if after.hits else 'NOT REACHED'}"
    return (
        kind,
        codec,
        size(after.largest_partition_bytes),
        f"{trial.before.files}",
        _share(trial.before.enough_mean, trial.target_bytes),
        f"{after.files}",
        _share(mean, trial.target_bytes),
        size(chosen.size_in_bytes) if chosen else "in force",
        "–" if after.ratio is None else f"{after.ratio:.2f}",
        f"{1 + len(trial.tried)}",
        near,
    )


def _share(mean: float | None, target: int) -> str:
    return "–" if mean is None else f"{mean / target:.0%} of target"
