"""Findings about what the bytes of files are begin exactly at their limits."""

import dataclasses

from icekit.facts.definition import Column
from icekit.facts.manifest_counts import ManifestFacts, MetricsSample
from icekit.facts.model import TableFacts
from tests.diagnose.told import required
from tests.factories import GIB, KIB, MIB, file_group, history, manifest_facts, table_facts

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


def wide(columns: int, *sizes: int, **properties: str) -> TableFacts:
    names = tuple(Column(i, f"c{i}", "int", False, i, "truncate(16)") for i in range(columns))
    return table_facts(
        columns=names, groups=(file_group(*sizes or [512 * MIB] * 4),), properties=properties
    )


def metadata_of(manifests: int, data: int, file: int = KIB) -> TableFacts:
    groups = (file_group(data),)
    held: ManifestFacts = manifest_facts(groups, data_bytes=manifests)
    return dataclasses.replace(table_facts(groups=groups, manifests=held), metadata_bytes=file)


def huge(metadata_bytes: int) -> TableFacts:
    return dataclasses.replace(
        metadata_of(KIB, GIB, metadata_bytes), history=history(snapshot_count=9000, schema_count=70)
    )


ROW_GROUP = "write.parquet.row-group-size-bytes"
#: For each finding, facts that it is made of and facts that it is not made of.
BORDERS: dict[str, tuple[list[TableFacts], list[TableFacts]]] = {
    # Half of the bytes and a mebibyte per file; entries of ORC and Avro have no column sizes.
    "bytes_outside_columns": (
        [of_content(MIB, 2 * MIB)],
        [of_content(MIB + 1, 2 * MIB), of_content(KIB, MIB), of_content(0, 3 * MIB)],
    ),
    "thin_column_chunks": (
        [wide(129)],
        [wide(128), wide(250, 127 * MIB), wide(250, GIB, **{ROW_GROUP: str(250 * MIB)})],
    ),
    # A mebibyte and a tenth of the data, or a file of eight mebibytes.
    "heavy_metadata": (
        [metadata_of(MIB, 10 * MIB), huge(8 * MIB)],
        [metadata_of(MIB, 10 * MIB + 20), metadata_of(MIB - 1, MIB), huge(8 * MIB - 1)],
    ),
}


def test_row_groups_of_the_largest_size_are_not_raised() -> None:
    facts = wide(2000, 2 * GIB, **{ROW_GROUP: str(GIB)})

    assert required(facts, "thin_column_chunks").sql == ()


SHOWN = {
    "bytes_outside_columns": of_content(4 * KIB, 3 * MIB),
    "bytes_outside_columns in bloom filters": of_content(4 * KIB, 3 * MIB, **BLOOMS),
    "thin_column_chunks": wide(250),
    "heavy_metadata": metadata_of(4600 * KIB, 6300 * KIB),
    "heavy_metadata in one file": huge(8 * MIB),
}
