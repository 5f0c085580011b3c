"""Orphan files and missing files of an object store are found without Spark."""

import os
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

import icekit
from icekit.engine.file_systems import _MANY_FOLDERS
from icekit.health.facts.storage import MissingFiles, Role

pytestmark = pytest.mark.servers
DAY = 86_400
IDS = Schema(NestedField(1, "id", LongType()), NestedField(2, "part", StringType()))
BY_PART = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part"))


@pytest.mark.parametrize("parts", [3, 2 * _MANY_FOLDERS])
def test_a_bucket_is_listed_and_compared(
    sql_on_s3: tuple[dict[str, str], Path], monkeypatch: pytest.MonkeyPatch, parts: int
) -> None:
    profile, bucket = sql_on_s3
    for key, value in profile.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__STORE__{key}", value)
    names = ["a b", "100%", *(f"é{n}#?" for n in range(parts - 2))]
    properties = {
        key.lower().replace("__", ".").replace("_", "-"): value for key, value in profile.items()
    }
    with load_catalog("store", **properties) as catalog:
        catalog.create_namespace_if_not_exists("db")
        table = catalog.create_table(("db", f"t{parts}"), IDS, partition_spec=BY_PART)
        for _ in range(2):
            table.append(pa.table({"id": list(range(parts)), "part": names}))
        folder = bucket / table.location().removeprefix("s3://lakehouse/")
        for lost in ("data/lost %41+", "data/part=new/lost", "_hidden/lost", "data/young"):
            (folder / lost).parent.mkdir(exist_ok=True)
            (folder / lost).write_bytes(b"x" * 7)
        for file in filter(Path.is_file, folder.rglob("*")):
            age = 2 if file.name == "young" else 4
            os.utime(file, (moment := file.stat().st_mtime - age * DAY, moment))
        facts = icekit.connect("store").observe(f"db.t{parts}", storage=True)

        assert facts.missing == MissingFiles()
        assert facts.storage is not None
        assert facts.storage.orphan_count == 2
        assert facts.storage.orphan_bytes == 14
        assert facts.storage.examples == (
            f"{table.location()}/data/lost %41+",
            f"{table.location()}/data/part=new/lost",
        )

        gone, grown = (task.file for task in list(table.scan().plan_files())[:2])
        for changed, change in ((gone, None), (grown, b"more")):
            path = bucket / changed.file_path.removeprefix("s3://lakehouse/")
            if change is None:
                path.unlink()
            else:
                path.write_bytes(path.read_bytes() + change)
        missing = icekit.connect("store").observe(f"db.t{parts}", storage=True).missing

        assert missing is not None
        count = missing.count(Role.DATA)
        assert (count.gone_count, count.resized_count) == (1, 1)
        assert {file.path for file in missing.examples} == {gone.file_path, grown.file_path}
