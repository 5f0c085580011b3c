"""Findings about what the bytes of files are tell the figures they rest on, and begin exactly at
their limits.
"""

import dataclasses

import pytest

from icekit.facts.definition import Column
from icekit.facts.manifest_counts import ManifestFacts, MetricsSample
from icekit.facts.model import TableFacts
from tests.diagnose.told import absent, named, present, shows, told
from tests.factories import GIB, KIB, MIB, file_group, history, manifest_facts, table_facts
from tests.golden import Golden

BLOOMS = {f"write.parquet.bloom-filter-enabled.column.{name}": "true" for name in ("a", "b", "c")}


def of_content(column_bytes: int, file_bytes: int, **properties: str) -> TableFacts:
    files = 20
    sample = MetricsSample(
        files,
        (),
        sized_files=files,
        file_bytes=file_bytes * files,
        column_bytes=column_bytes * files,
    )
    group = file_group(*[file_bytes] * files, records_per_file=120)
    return table_facts(groups=(group,), metrics_sample=sample, properties=properties)


def test_bytes_outside_of_columns_begin_at_half_the_bytes_and_a_mebibyte_per_file() -> None:
    present("bytes_outside_columns", of_content(MIB, 2 * MIB))
    absent("bytes_outside_columns", of_content(MIB + 1, 2 * MIB), of_content(KIB, MIB))
    assert named(of_content(0, 3 * MIB), "bytes_outside_columns") is None, (
        "ORC and Avro entries have no column sizes"
    )


def wide(columns: int, *sizes: int, **properties: str) -> TableFacts:
    names = tuple(Column(i, f"c{i}", "int", False, i, "truncate(16)") for i in range(columns))
    return table_facts(
        columns=names, groups=(file_group(*sizes or [512 * MIB] * 4),), properties=properties
    )


def test_columns_that_have_little_of_a_row_group_are_told() -> None:
    absent("thin_column_chunks", wide(128), wide(250, 127 * MIB))
    present("thin_column_chunks", wide(129))
    large = {"write.parquet.row-group-size-bytes": str(250 * MIB)}
    absent("thin_column_chunks", wide(250, GIB, **large))
    largest = {"write.parquet.row-group-size-bytes": str(GIB)}
    assert told(wide(2000, 2 * GIB, **largest), "thin_column_chunks")[3] == ()


def metadata_of(manifests: int, data: int, file: int = KIB) -> TableFacts:
    groups = (file_group(data),)
    held: ManifestFacts = manifest_facts(groups, data_bytes=manifests)
    return dataclasses.replace(table_facts(groups=groups, manifests=held), metadata_bytes=file)


def test_manifests_out_of_proportion_to_the_data_are_told() -> None:
    present("heavy_metadata", metadata_of(MIB, 10 * MIB))
    absent("heavy_metadata", metadata_of(MIB, 10 * MIB + 20), metadata_of(MIB - 1, MIB))


def huge(metadata_bytes: int) -> TableFacts:
    return dataclasses.replace(
        metadata_of(KIB, GIB, metadata_bytes), history=history(snapshot_count=9000, schema_count=70)
    )


def test_a_metadata_file_is_heavy_from_eight_mebibytes_on() -> None:
    present("heavy_metadata", huge(8 * MIB))
    absent("heavy_metadata", huge(8 * MIB - 1))


SHOWN = {
    "bytes_outside_columns": of_content(4 * KIB, 3 * MIB),
    "bytes_outside_columns in bloom filters": of_content(4 * KIB, 3 * MIB, **BLOOMS),
    "thin_column_chunks": wide(250),
    "heavy_metadata": metadata_of(4600 * KIB, 6300 * KIB),
    "heavy_metadata in one file": huge(8 * MIB),
}


@pytest.mark.parametrize("case", SHOWN)
def test_a_finding_about_bytes_looks_like_its_golden_file(case: str, golden: Golden) -> None:
    shows(golden, case, SHOWN[case])
