"""A packed table says the same elsewhere, with and without its names."""

from __future__ import annotations

import re
import shutil
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import BinaryType, LongType, NestedField, StringType, StructType

import icekit
from icekit.api import Lake
from icekit.common.errors import ParameterError
from icekit.engine.packing import table_folder
from icekit.engine.tables import EmbeddedTables
from icekit.health import TableFacts
from icekit.iceberg.pack import PackUnusable
from tests.commands import command
from tests.iceberg.moving import readable
from tests.offline import lake_in

if TYPE_CHECKING:
    from pyiceberg.catalog.sql import SqlCatalog

SECRETS = ["secret", "Geheim", "patient", "diagnosis", "cancer", "flu", "ward", "person.name"]
SCHEMA = Schema(
    NestedField(1, "patient", LongType(), doc="a secret"),
    NestedField(2, "diagnosis", StringType()),
    NestedField(3, "ward", StringType()),
    NestedField(
        4,
        "person",
        StructType(NestedField(5, "name", StringType()), NestedField(6, "x", BinaryType())),
    ),
)
SPEC = PartitionSpec(PartitionField(3, 1000, IdentityTransform(), "ward"))
PROPERTIES = {
    "icekit.filter-columns": "patient,person.name",
    "write.metadata.metrics.column.person.name": "full",
    "write.metadata.metrics.column.diagnosis": "truncate(16)",
    "write.object-storage.path": "s3://secret/Geheim",
    "secret": "Geheim",
    "quality.report": "secret " * 1000,
}


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    with lake_in(tmp_path / "a secret folder") as catalog:
        _make(catalog)
    return Lake("lake", None, EmbeddedTables(tmp_path / "a secret folder"))


@pytest.fixture
def other(tmp_path: Path) -> Lake:
    return Lake("lake", None, EmbeddedTables(tmp_path / "other"))


def _make(catalog: SqlCatalog) -> None:
    table = catalog.create_table("db.secret", SCHEMA, partition_spec=SPEC, properties=PROPERTIES)
    for number in range(8):
        names = ["flu", "cancer", "", "secret cough", None]
        rows = {
            "patient": range(number, number + 5),
            "diagnosis": names,
            "ward": ["ward a", "ward b", "", "secret ward", None],
            "person": [{"name": f"Geheim {n}", "x": b"secret"} for n in range(5)],
        }
        table.append(pa.table(rows, schema=table.schema().as_arrow()), {"secret.key": "Geheim"})
    with table.manage_snapshots() as snapshots:
        snapshots.create_tag(table.current_snapshot().snapshot_id, "secret_tag")  # type: ignore[union-attr]


def _figures(facts: TableFacts) -> tuple[object, ...]:
    findings = icekit.diagnose(facts)
    return (
        facts.data,
        [each.mean_share for each in facts.manifests.overlaps],
        len(set(facts.partitions())),
        facts.history.snapshot_count,
        [(each.name, each.severity) for each in findings],
        [each.command is None for each in findings],
    )


@pytest.mark.parametrize("redact", [False, True])
def test_findings_and_plans_are_the_same_elsewhere(
    lake: Lake, other: Lake, tmp_path: Path, redact: bool
) -> None:
    lake.pack("db.secret", tmp_path / "p.zip", redact=redact)
    (unpacked,) = other.unpack(tmp_path / "p.zip", "db.again")
    before, after = lake.observe("db.secret"), other.observe("db.again")

    assert not unpacked.has_data
    assert _figures(after) == _figures(before)
    plans = [lake.propose("db.secret"), other.propose("db.again")]
    assert [replace(each, command="", gain="", share=None) for each in plans[0].proposals] == [
        replace(each, command="", gain="", share=None) for each in plans[1].proposals
    ]
    assert plans[0].file_opens == plans[1].file_opens > 0


def test_a_redacted_pack_has_no_name_and_no_text(lake: Lake, other: Lake, tmp_path: Path) -> None:
    packed = lake.pack("db.secret", tmp_path / "p.zip", redact=True)
    other.unpack(tmp_path / "p.zip", "db.again")

    with zipfile.ZipFile(tmp_path / "p.zip") as archive:
        texts = {
            name: readable(archive.read(name)).decode("latin-1") for name in archive.namelist()
        }
    for word in SECRETS:
        assert [name for name, text in texts.items() if word in text or word in name] == [], word
    assert "still readable: types of columns, numbers" in str(packed)
    facts = other.observe("db.again")
    assert facts.filter_columns == ("c1", "c4.c5")
    assert facts.by_name["c4.c5"].metrics_mode == "full"
    assert [field.name for field in facts.default_spec.fields] == ["p1000"]
    assert re.fullmatch(r"/.*/other/warehouse/db/again", facts.location)


def test_texts_keep_their_order_and_equality(lake: Lake, other: Lake, tmp_path: Path) -> None:
    lake.pack("db.secret", tmp_path / "p.zip", redact=True)
    other.unpack(tmp_path / "p.zip", "db.again")
    before, after = (
        [partition.values[0] for partition in each.partitions()]
        for each in (lake.observe("db.secret"), other.observe("db.again"))
    )

    pairs = sorted({(old, new) for old, new in zip(before, after, strict=True) if old is not None})
    assert [len(str(new)) for _, new in pairs] == [len(str(old)) for old, _ in pairs]
    assert sorted(new for _, new in pairs) == [new for _, new in pairs]  # type: ignore[type-var]
    assert (None, None) in zip(before, after, strict=True)


def test_rows_are_never_redacted(lake: Lake, tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="data files hold the rows"):
        lake.pack("db.secret", tmp_path / "p.zip", data=True, redact=True)
    assert not (tmp_path / "p.zip").exists()


def test_a_table_is_packed_unpacked_and_looked_at_by_commands(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = str(tmp_path / "p.icekit.zip")
    monkeypatch.setenv("ICEKIT_LAKE", str(lake.tables.path))  # type: ignore[attr-defined]
    status, printed = command("pack", "db.secret", file)
    assert status == 0
    assert "metadata only, no row of data" in printed
    assert "it may be private: names of columns" in printed
    assert printed.endswith(f"Next:  icekit unpack {file}\n")

    monkeypatch.setenv("ICEKIT_LAKE", str(tmp_path / "other"))
    status, printed = command("unpack", file)
    assert (status, printed.splitlines()[-1]) == (0, "Next:  icekit look db.secret")
    assert "without its data files" in printed
    status, printed = command("look", "db.secret")
    assert status == 0
    assert "unpacked from its metadata alone" in printed
    status, printed = command("unpack", file)
    assert status == 2
    assert "db.secret exists in the lake" in printed
    assert "--name" in printed
    assert command("unpack", file, "--name", "db.another")[0] == 0


def test_what_counts_is_the_space_where_a_table_is_unpacked(
    lake: Lake, other: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "p.icekit.zip"
    lake.pack("db.secret", file)
    assert isinstance(other.tables, EmbeddedTables)
    other.tables.path.mkdir()
    usage = shutil.disk_usage(tmp_path)
    full_folders = {other.tables.path}

    def disk_usage(folder: Path) -> object:
        return usage._replace(free=0) if folder in full_folders else usage

    monkeypatch.setattr(shutil, "disk_usage", disk_usage)
    with pytest.raises(PackUnusable, match=r"and the disk of .*other has 0 B free"):
        other.unpack(file)
    assert list(other.tables.path.iterdir()) == []

    full_folders = {file.parent}
    assert [each.table for each in other.unpack(file)] == [("db", "secret")]


def test_pyiceberg_reads_a_table_that_was_packed_with_its_data(
    lake: Lake, other: Lake, tmp_path: Path
) -> None:
    lake.pack("db.secret", tmp_path / "p.zip", data=True)
    other.unpack(tmp_path / "p.zip")
    assert isinstance(lake.tables, EmbeddedTables)
    assert isinstance(other.tables, EmbeddedTables)
    rows = []
    for tables in (lake.tables, other.tables):
        with tables.catalog("lake") as catalog:
            rows.append(catalog.load_table("db.secret").scan().to_arrow().to_pylist())
            assert catalog.namespace_exists("db")

    assert rows[0] == rows[1]
    assert len(rows[0]) == 40


@pytest.mark.parametrize("name", [("..", "t"), ("db", "../../t"), ("a/b", ".t"), (".", "")])
def test_no_name_leads_out_of_the_lake(tmp_path: Path, name: tuple[str, ...]) -> None:
    folder = table_folder(tmp_path, name)

    assert folder.resolve() == folder
    assert folder.is_relative_to(tmp_path / "warehouse")
