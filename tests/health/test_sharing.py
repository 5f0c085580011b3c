"""Tables that keep files in one place are found, however the place is written."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

import icekit
from icekit.api import Lake
from icekit.common.errors import CatalogUnreachable, TableNotFound
from icekit.common.sql import Identifier
from icekit.engine.tables import EmbeddedTables, TableSource
from icekit.health.facts.metadata_file import load_metadata
from icekit.health.facts.storage import SharedPlace, Sharing
from icekit.health.storage import orphans
from icekit.health.storage.orphans import ReadLimits, sharing
from icekit.iceberg.paths import folder_spellings, may_overlap
from tests.damage import on_disk
from tests.offline import IDS, lake_in

Create = Callable[..., str]
A = ("db", "a")


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    """The catalog of a lake of its own, without Spark."""
    with lake_in(tmp_path) as catalog:
        yield catalog


@pytest.fixture
def lake(catalog: SqlCatalog) -> Lake:
    return icekit.connect()


@pytest.fixture
def create(catalog: SqlCatalog) -> Create:
    """Make a table; returns its location."""

    def make(name: str, location: str | None = None, **properties: str) -> str:
        own = {key.replace("_", "."): value for key, value in properties.items()}
        table = catalog.create_table(("db", name), IDS, location=location, properties=own)
        return str(table.location())

    return make


def found(lake: Lake, seconds: float = 600.0) -> Sharing:
    return sharing(lake, A, ReadLimits(max_seconds=seconds))


PLACES = {
    True: [
        ("s3://b/w/a", "s3://b/w/a/"),
        ("s3://b/w/a", "s3a://b/w/a"),
        ("s3n://b/w/a", "S3://B/w/a"),
        ("s3://b/w/a", "s3://b/w/a/data/deep"),
        ("s3://b", "s3://b/w/a"),
        ("s3://b/w/a b", "s3://b/w/a%20b"),
        ("s3://b/w/x/../a", "s3://b/w/a"),
        # As an object store has it, it is a key below x.
        ("s3://b/w/x/../a", "s3://b/w/x"),
        ("s3://b/w//a", "s3://b/w/a"),
        ("file:/w/a", "file:///w/a"),
        ("file:/w/a", "/w/a"),
        ("file://localhost/w/a", "/w/./a"),
        ("/w/%2e%2e/a", "file:/a"),
        ("hdfs:///w/a", "hdfs://one:8020/w/a"),
        ("hdfs://service/w/a", "hdfs://one:8020/w/a"),
        ("/w/a", "hdfs://one:8020/w/a"),
        ("abfss://c@acc.dfs.core.windows.net/w/a", "wasbs://c@acc.blob.core.windows.net/w/a"),
    ],
    False: [
        ("s3://b/w/a", "s3://b/w/a_old"),
        ("s3://b/w/a", "s3://other/w/a"),
        ("s3://b/w/a", "gs://b/w/a"),
        ("file:/w/a", "file:/w/b"),
        ("abfss://c@acc.dfs.core.windows.net/w/a", "abfss://d@acc.dfs.core.windows.net/w/a"),
    ],
}


@pytest.mark.parametrize(
    ("one", "other", "is_one"), [(*pair, is_one) for is_one in PLACES for pair in PLACES[is_one]]
)
def test_one_place_is_one_place_however_it_is_written_and_places_side_by_side_are_two(
    one: str, other: str, is_one: bool
) -> None:
    assert may_overlap(folder_spellings(one), folder_spellings(other)) is is_one
    assert may_overlap(folder_spellings(other), folder_spellings(one)) is is_one


def test_a_symbolic_link_leads_to_the_same_place(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")

    link = folder_spellings(f"file:{tmp_path}/link/a")
    assert may_overlap(link, folder_spellings(str(tmp_path / "real" / "a")))


def test_a_table_beside_others_shares_nothing(lake: Lake, create: Create) -> None:
    create("a")
    create("a_old")

    assert found(lake) == Sharing()


@pytest.mark.parametrize("key", ["write_data_path", "write_metadata_path"])
def test_every_path_that_a_table_writes_to_is_compared(
    lake: Lake, create: Create, key: str
) -> None:
    inside = f"{create('a')}/elsewhere"
    create("b", **{key: inside})
    # Of older writers.
    create("c", **{"write.object-storage.path": f"{inside}/c"})
    create("d", **{"write.folder-storage.path": inside})

    assert [(each.table, each.path) for each in found(lake).shared] == [
        ("db.b", inside),
        ("db.c", f"{inside}/c"),
        ("db.d", inside),
    ]


def test_a_table_around_this_one_is_named_with_its_path(
    lake: Lake, create: Create, tmp_path: Path
) -> None:
    create("a", f"file://{tmp_path}/big/a")
    create("big", f"file://{tmp_path}/big")

    assert found(lake).summary == f"shared location with db.big (file://{tmp_path}/big)"


def test_metadata_that_lies_elsewhere_than_its_table_says_is_found(
    lake: Lake, create: Create, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_behind = f"{create('a')}/metadata/of-another.metadata.json"
    create("moved", f"file://{tmp_path}/moved")
    source = lake.tables.source
    moved = source(("db", "moved"))
    on_disk(left_behind).write_bytes(on_disk(moved.metadata_location).read_bytes())
    sources = {A: source(A), ("db", "moved"): TableSource(left_behind, moved.read)}
    monkeypatch.setattr(EmbeddedTables, "source", lambda _, name: sources[name])

    assert [place.table for place in found(lake).shared] == ["db.moved"]


def test_a_table_whose_metadata_is_gone_leaves_it_unknown(lake: Lake, create: Create) -> None:
    create("a")
    create("broken")
    on_disk(lake.tables.source(("db", "broken")).metadata_location).unlink()

    answer = found(lake)

    assert (answer.unchecked or "").startswith("db.broken cannot be read: ")
    assert "another table may keep files in this location" in (answer.refusal or "")


@pytest.mark.parametrize("is_listed", [True, False])
def test_a_table_that_is_not_found_is_gone_only_if_it_is_listed_no_more(
    lake: Lake, create: Create, is_listed: bool
) -> None:
    create("a")
    create("b", f"{create('c')}/inside")

    class Hiding(EmbeddedTables):
        listings = 0

        def names(self) -> list[Identifier]:
            self.listings += 1
            return [
                name
                for name in super().names()
                if is_listed or self.listings == 1 or name != ("db", "b")
            ]

        def source(self, table: Identifier) -> TableSource:
            if table == ("db", "b"):
                raise TableNotFound("There is no table db.b.")
            return super().source(table)

    lake.tables = Hiding(lake.tables.path)  # type: ignore[attr-defined]

    for _ in range(2):
        answer = sharing(lake, ("db", "c"), max_age_seconds=600.0)
        assert answer.unchecked == (
            "db.b cannot be read: the catalog lists it, but says that it does not exist"
            if is_listed
            else None
        )


def silent(_: EmbeddedTables) -> list[Identifier]:
    raise CatalogUnreachable("It does not answer.")


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (silent, "the tables of catalog 'lake' cannot be listed: It does not answer"),
        (lambda _: [], "does not have db.a: it is not complete"),
    ],
    ids=["no list", "a list without the table"],
)
def test_a_catalog_that_lists_not_all_its_tables_leaves_it_unknown(
    lake: Lake, create: Create, monkeypatch: pytest.MonkeyPatch, names: Any, said: str
) -> None:
    create("a")
    monkeypatch.setattr(EmbeddedTables, "names", names)

    assert said in (found(lake).unchecked or "")


def test_comparing_ends_with_its_time_and_says_how_far_it_came(
    lake: Lake, create: Create, monkeypatch: pytest.MonkeyPatch
) -> None:
    create("a")
    create("b")
    is_over = threading.Event()

    def load(source: TableSource) -> Any:
        if "/b/" in source.metadata_location:
            is_over.wait(600)
        return load_metadata(source)

    monkeypatch.setattr(orphans, "load_metadata", load)
    answer = found(lake, seconds=0.1)
    is_over.set()

    assert "0 of 1 table compared within" in (answer.unchecked or "")


def test_what_was_read_lately_is_not_read_again_unless_it_matters(
    lake: Lake, create: Create, catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    create("a")
    create("b")
    create("late", f"{create('c')}/inside")
    read: list[str] = []

    def load(source: TableSource) -> Any:
        read.append(source.metadata_location)
        return load_metadata(source)

    monkeypatch.setattr(orphans, "load_metadata", load)

    def of(name: str, max_age_seconds: float = 0.0) -> Sharing:
        read.clear()
        return sharing(lake, ("db", name), max_age_seconds=max_age_seconds)

    assert of("a") == Sharing()
    assert len(read) == 4
    assert of("b", max_age_seconds=600.0) == Sharing()
    assert len(read) == 2
    assert (
        of("c", max_age_seconds=600.0).summary.partition(" (")[0] == "shared location with db.late"
    )
    assert len(read) == 2
    # A removal looks at everything again.
    assert of("b") == Sharing()
    assert len(read) == 4
    catalog.drop_table(("db", "late"))
    assert of("c", max_age_seconds=600.0) == Sharing()


def test_a_table_that_was_made_since_the_catalog_was_listed_is_found(
    lake: Lake, create: Create
) -> None:
    create("a")
    found(lake)
    location = create("b")

    assert sharing(lake, ("db", "b"), max_age_seconds=600.0) == Sharing()
    create("c", f"{location}/inside")
    assert sharing(lake, ("db", "b")).shared == (SharedPlace("db.c", f"{location}/inside"),)
