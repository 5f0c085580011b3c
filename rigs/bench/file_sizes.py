"""Four kinds of data in three codecs: how near the target the files come, before and after, and
what the ratio is.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import icekit
from icekit.api import Lake
from icekit.common.sql import identifier, literal
from icekit.common.units import size
from icekit.tune.answer import Answer
from icekit.tune.commits import TOLERANCE
from icekit.tune.file_sizes import ADVISORY, LARGE_FILES, LARGE_MEAN, NOW, SIZED
from rigs.bench.measure import Others, show

SPARK_CONF = "spark.driver.memory=2g"
NAMESPACE = "bench_sizes"
TARGET, ROW_GROUP = 2**19, 2**16
FILES = 18
# What Iceberg asks for by default at 512 MB, lz4 to zstd, taken down with the target.
DEFAULT_ADVISORY = 384 * TARGET // 512
#: Columns of each kind, of the row's number ``id``, and the rows that a file of the target size
# takes, roughly.
KINDS = {
    "numbers": ("xxhash64(id) AS a, cast(id % 100000 AS int) AS b, id * 0.37 AS c", 32_000),
    "low-cardinality strings": (
        "concat('state-', xxhash64(id) % 8) AS a, concat('country-', xxhash64(id, 1) % 150) AS b, "
        "concat('carrier-', xxhash64(id, 2) % 16) AS c",
        300_000,
    ),
    "long URLs": (
        "concat('https://www.example.org/shop/', xxhash64(id) % 5000, '/item/', hex(xxhash64(id, "
        "1)), '?session=', hex(xxhash64(id, 2)), '&from=newsletter&page=', id % 40) AS url",
        26_000,
    ),
    "nested": (
        "named_struct('k', xxhash64(id) % 1000, 'at', named_struct('x', id * 0.5D, 'y', "
        "concat('p', id % 700))) AS s, transform(sequence(1, 1 + cast(pmod(xxhash64(id, 3), 5) AS "
        "int)), x -> x * (id % 90)) AS l",
        56_000,
    ),
}
CODECS = ("zstd", "snappy", "gzip")


def run(sizes: Sequence[int], *, long: bool) -> None:
    """Run on the bench lake; ``sizes`` are of other benches' tables, ``long`` adds tables of one
    more codec.
    """
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
        "before",
        "mean",
        "after",
        "mean",
        "advisory size",
        "within 15 %",
        "others",
    )
    show(f"Mean file size for a target of {size(TARGET)}", head, rows)


def measure(
    lake: Lake,
    namespace: str,
    kind: str,
    codec: str,
    *,
    target: int = TARGET,
    files: int = FILES,
    partitioned: bool = True,
) -> Answer:
    """Make a table of a kind of data, and try sizes on a clone of it; the table is dropped
    afterwards.
    """
    columns, per_file = KINDS[kind]
    name = (namespace, f"{kind.split()[0].replace('-', '_')}_{codec}".lower())
    full = identifier(*lake.sql_name(name))
    properties = {
        "write.target-file-size-bytes": str(target),
        "write.parquet.row-group-size-bytes": str(ROW_GROUP * target // TARGET),
        "write.parquet.compression-codec": codec,
        ADVISORY: str(DEFAULT_ADVISORY * target // TARGET),
    }
    pairs = ", ".join(f"{literal(k)} = {literal(v)}" for k, v in properties.items())
    by = "PARTITIONED BY (p)" if partitioned else ""
    count = per_file * files * target // TARGET
    try:
        lake.spark.sql(
            f"CREATE OR REPLACE TABLE {full} USING iceberg {by} TBLPROPERTIES ({pairs}) AS SELECT "
            f"id, cast(id * 10 / {count} > 9 AS int) AS p, {columns} FROM range(0, {count}, 1, 8)"
        )
        return lake.tune("file-sizes", name, budget_seconds=600, progress=lambda _: None)
    finally:
        lake.spark.sql(f"DROP TABLE IF EXISTS {full} PURGE")


def _row(kind: str, codec: str, answer: Answer) -> tuple[str, ...]:
    variant = SIZED if SIZED in answer.measured.values_by_variant else NOW
    before, after = (
        answer.measured.value(NOW, LARGE_MEAN),
        answer.measured.value(variant, LARGE_MEAN),
    )
    near = (
        "too few data"
        if after is None
        else f"{after / TARGET - 1:+.0%} "
        f"{'yes' if abs(after / TARGET - 1) <= TOLERANCE else 'NOT REACHED'}"
    )
    advisory = next(
        (
            change.proposed
            for change in answer.changes
            if change.setting == ADVISORY and change.is_change
        ),
        None,
    )
    files = [answer.measured.value(name, LARGE_FILES) for name in (NOW, variant)]
    return (
        kind,
        codec,
        f"{files[0]}",
        _share(before, TARGET),
        f"{files[1]}",
        _share(after, TARGET),
        size(int(advisory)) if advisory else "in force",
        near,
    )


def _share(mean: float | None, target: int) -> str:
    return "–" if mean is None else f"{mean / target:.0%} of target"
