"""The chain says who overrides whom, and what file comes of it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from icekit.errors import ParameterError
from icekit.tune.file_sizes.advisory_size import ICEBERG_SESSION, PROPERTY, SPARK_ADVISORY, Chain, chain, compression_ratio, spark_bytes
from tests.factories import MIB, table_facts
from tests.tune.file_sizes.making import CLUSTER


def of(
    session: Mapping[str, str | None] | None = None,
    *,
    mode: str = "hash",
    operation: str = "append",
    properties: Mapping[str, str] | None = None,
) -> Chain:
    return chain(table_facts(properties=properties or {}), session or {}, CLUSTER, mode=mode, operation=operation)


def test_by_default_the_files_are_of_128_mib_whatever_the_target() -> None:
    found = of()

    assert (found.advisory_bytes, found.ratio, found.file_bytes) == (384 * MIB, 3.0, 128 * MIB)
    assert found.advisory.origin.startswith("max(128 MiB × 3")


def test_sparks_own_size_counts_only_where_it_is_larger_than_icebergs_default() -> None:
    assert of({SPARK_ADVISORY: "1g"}).advisory_bytes == 1024 * MIB
    assert of({SPARK_ADVISORY: "1g", ICEBERG_SESSION: "1000"}).advisory_bytes == 1000


def test_a_session_overrides_the_table_and_an_option_both_and_the_chain_names_the_losers() -> None:
    facts = table_facts(properties={PROPERTY: "100"})

    found = chain(facts, {ICEBERG_SESSION: "200"}, CLUSTER, mode="hash", options={"advisory-partition-size": "300"})

    assert found.advisory_bytes == 300
    assert [link.value for link in found.advisory.overridden] == ["200", "100"]
    assert any("it overrides session spark.sql.iceberg.advisory-partition-size, table property" in why for _, _, why in found.rows())


def test_without_a_shuffle_or_adaptive_execution_nobody_asks_for_the_size() -> None:
    assert of(mode="none").file_bytes is None
    assert of({"spark.sql.adaptive.enabled": "false"}).file_bytes is None


def test_only_a_merge_on_read_delete_asks_for_the_size_of_delete_files() -> None:
    merging = {"write.delete.mode": "merge-on-read", "write.merge.mode": "merge-on-read"}

    assert of(operation="delete", properties=merging).advisory_bytes == 96 * MIB
    assert of(operation="merge", properties=merging).advisory_bytes == 384 * MIB
    assert of(operation="delete").advisory_bytes == 384 * MIB


def test_small_commits_are_cut_for_the_cores_unless_parallelism_comes_second() -> None:
    assert of().task_bytes(160 * MIB) == 20 * MIB
    assert of().task_bytes(2 * MIB) == MIB
    assert of({"spark.sql.adaptive.coalescePartitions.parallelismFirst": "false"}).task_bytes(160 * MIB) == 384 * MIB
    assert of({"spark.sql.adaptive.enabled": "false"}).task_bytes(400 * MIB) == 2 * MIB


@pytest.mark.parametrize(
    ("shuffle", "codec", "ratio"),
    [
        ("none", "zstd", 4),
        ("none", "snappy", 3),
        ("lz4", "gzip", 3),
        ("snappy", "lz4", 2),
        ("zstd", "zstd", 2),
        ("zstd", "snappy", 1.5),
        ("lz4", "brotli", 2),
    ],
)
def test_the_guess_depends_on_the_codecs_alone(shuffle: str, codec: str, ratio: float) -> None:
    assert compression_ratio(shuffle, codec) == ratio


def test_sizes_are_read_as_spark_writes_them() -> None:
    assert [spark_bytes(text) for text in ("64MB", "64m", "67108864b", "67108864")] == [64 * MIB] * 4
    with pytest.raises(ParameterError, match="not a size in Spark's notation"):
        spark_bytes("much")
