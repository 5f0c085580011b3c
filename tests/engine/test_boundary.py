"""What goes wrong with input, disk, catalog and engine is said with the thing named; exit 3 is for
bugs alone.
"""

import contextlib
import errno
import json
import os
import re
import resource
import socket
import sqlite3
import ssl
import subprocess
import sys
import urllib.error
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.errors import AnalysisException

import icekit
from icekit.api import Lake
from icekit.cli.main import main
from icekit.engine.errors import outside, reason
from icekit.errors import CatalogUnreachable, DiskUnusable, IcekitError
from icekit.saving import write_text
from tests.offline import IDS, lake_in

Refused = Callable[..., str]
ODD = "esc\x1b[31m\u202eodd"


class Place:
    """A lake without Spark, whose tables' metadata and properties a test may spoil."""

    def __init__(self, catalog: SqlCatalog) -> None:
        self.catalog = catalog

    def table(self, name: str = "t", **properties: str) -> Path:
        """Make an empty table; returns its metadata file."""
        made = self.catalog.create_table(("db", name), IDS, properties=properties)
        return Path(made.metadata_location.removeprefix("file://"))


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with lake_in(tmp_path / "lake") as catalog:
        yield Place(catalog)


@contextlib.contextmanager
def no_file_larger_than(size_in_bytes: int) -> Iterator[None]:
    """As on a disk that is full: what is written past the limit is refused."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_in_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
def refused(place: Place, capsys: pytest.CaptureFixture[str]) -> Refused:
    """What a command says on the terminal that ends with status 2, in one line and without a
    trace.
    """

    def said(*arguments: object) -> str:
        status = main(list(map(str, arguments)))
        printed = capsys.readouterr()
        assert status == 2, printed
        assert "bug" not in printed.err
        assert "Traceback" not in printed.err
        return printed.err

    return said


# Tables


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("write.target-file-size-bytes", "0"),
        ("write.target-file-size-bytes", "-1"),
        ("write.target-file-size-bytes", "512 MB"),
        ("write.target-file-size-bytes", "9" * 40),
        ("write.delete.target-file-size-bytes", "0"),
        ("commit.manifest.target-size-bytes", "0"),
        ("write.parquet.row-group-size-bytes", "0"),
        ("write.metadata.previous-versions-max", "many"),
        ("write.metadata.metrics.max-inferred-column-defaults", "all"),
        ("history.expire.max-snapshot-age-ms", "5 days"),
        ("history.expire.min-snapshots-to-keep", ""),
        ("read.split.target-size", "0"),
        ("write.parquet.bloom-filter-ndv.column.id", "lots"),
    ],
)
def test_a_number_that_is_none_is_refused_by_the_name_of_the_property(
    place: Place, refused: Refused, name: str, value: str
) -> None:
    place.table(**{name: value})

    said = refused("look", "db.t")

    assert f"The table property {name} is {value[:30]!r}"[:80] in said
    assert f"UNSET TBLPROPERTIES ('{name}')" in said


def spoilt(path: Path, **changes: Any) -> None:
    """Change what a metadata file says."""
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_a_card_is_not_drawn_of_damaged_metadata(place: Place, refused: Refused) -> None:
    spoilt(place.table(), **{"current-snapshot-id": 99})

    assert "current-snapshot-id is 99" in refused("look", "db.t")


def test_a_report_of_damaged_metadata_is_not_a_healthy_one(
    place: Place, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    spoilt(place.table(), **{"current-snapshot-id": 99})

    assert main(["report", "db.t", "--fail-on", "warning", "--output", str(tmp_path / "out")]) == 2
    assert "db.t: misconfigured" in capsys.readouterr().out


def test_a_metadata_file_that_is_none_is_named(place: Place, refused: Refused) -> None:
    path = place.table()
    path.write_bytes(b"\x00\xff" * 50)

    assert path.name in refused("look", "db.t")


def test_a_profile_whose_catalog_reads_metadata_itself_names_what_is_damaged(
    place: Place,
    refused: Refused,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE2__URI", f"sqlite:///{tmp_path}/lake/catalog.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE2__TYPE", "sql")
    path = place.table()
    with contextlib.closing(sqlite3.connect(tmp_path / "lake" / "catalog.db")) as db, db:
        db.execute("UPDATE iceberg_tables SET catalog_name = 'lake2'")
        db.execute("UPDATE iceberg_namespace_properties SET catalog_name = 'lake2'")
    spoilt(path, **{"format-version": "two"})

    said = refused("look", "db.t", "--catalog", "lake2")

    assert "returns damaged metadata: " in said
    assert "format-version" in said


# Names


def test_a_name_cannot_command_the_terminal(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    place.table(ODD)

    for arguments in (
        ["admin", "tables"],
        ["look", f"db.{ODD}"],
        ["look", f"db.{ODD}x"],
        ["look", "db.t", f"--{ODD}"],
    ):
        with contextlib.suppress(SystemExit):
            main(arguments)
        said = capsys.readouterr()
        assert said.out + said.err
        assert not re.search(r"[\x1b\u202e]", said.out + said.err), arguments


def test_a_name_that_xml_has_no_place_for_costs_no_other_table_its_case(
    place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spoilt(place.table(ODD), **{"format-version": 99})
    spoilt(place.table("t"), **{"format-version": 99})
    junit = tmp_path / "report.xml"

    assert main(["report", "db.*", "--junit", str(junit), "--output", str(tmp_path / "out")]) == 2
    assert "\x1b" not in capsys.readouterr().out
    assert sorted(case.attrib["name"] for case in ElementTree.parse(junit).iter("testcase")) == [
        "db.`esc\N{REPLACEMENT CHARACTER}[31m\N{REPLACEMENT CHARACTER}odd`",
        "db.t",
    ]


def test_a_name_of_half_characters_is_no_name(
    place: Place, refused: Refused, tmp_path: Path
) -> None:
    place.table()

    assert "is not a table name" in refused("report", "db.\udcff", "--output", tmp_path / "out")


def test_everything_is_printed_from_one_place() -> None:
    package = Path(__file__).parents[2] / "icekit"
    alone = {"terminal.py"}

    printing = [
        f"{path.relative_to(package)}:{number}"
        for path in package.rglob("*.py")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if path.relative_to(package).as_posix() not in alone
        and re.search(r"(?<![\w.])print\(|sys\.std(out|err)\.write", line)
    ]

    assert printing == []


# Disks


def test_a_full_disk_is_named_with_the_file_and_leaves_no_half_of_it(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="File too large") as caught, no_file_larger_than(10):
        write_text(tmp_path / "page.html", "x" * 100_000)

    assert str(tmp_path / "page.html") in str(outside(caught.value))
    assert list(tmp_path.iterdir()) == []


def test_a_report_on_a_full_disk_ends_with_the_file_that_had_no_place(
    place: Place, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    place.table()
    with no_file_larger_than(10):
        status = main(["report", "db.t", "--output", str(tmp_path / "out")])

    assert status == 2
    assert re.search(
        r"out/\S+ cannot be written or read: .*choose another path", capsys.readouterr().err
    )


@pytest.mark.parametrize(
    "made",
    [
        lambda path: path.write_text(""),
        lambda path: (path / "index.html.partial").mkdir(parents=True),
    ],
)
def test_a_folder_that_is_none_is_named(
    place: Place, refused: Refused, tmp_path: Path, made: Callable[[Path], object]
) -> None:
    place.table()
    made(tmp_path / "out")

    assert str(tmp_path / "out") in refused("report", "db.t", "--output", tmp_path / "out")


def test_a_name_that_is_too_long_for_a_file_is_shortened(
    place: Place, refused: Refused, tmp_path: Path
) -> None:
    place.table()

    said = refused("report", "db.t", "--output", tmp_path / ("x" * 5000))

    assert "File name too long" in said
    assert len(said) < 500


def test_standard_output_on_a_full_disk_is_an_error_of_its_own(place: Place) -> None:
    place.table()
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "icekit", "look", "db.t"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )

    assert done.returncode == 2
    assert done.stderr == (
        "icekit: Standard output cannot be written or read: No space left on device. Check the "
        "path, its disk and its permissions, or choose another path.\n"
    )


def test_a_place_where_nothing_can_be_made_is_not_a_name_to_check_only(
    place: Place, refused: Refused
) -> None:
    place.table()

    assert "choose another path" in refused("report", "db.t", "--output", "/proc/x")


@pytest.mark.parametrize(
    ("command", "status"),
    [
        ("look f.nope 2>/dev/full", 2),
        ("look 2>/dev/full", 2),
        ("--help >/dev/full", 2),
        ("admin tables >&-", 0),
        ("look db.t >&-", 0),
        ("look f.nope 2>&-", 2),
        pytest.param("report db.t --output out >&-", 0, marks=pytest.mark.slow),
        pytest.param("report db.t --output out >&- 2>&- <&-", 0, marks=pytest.mark.slow),
    ],
)
def test_streams_that_are_full_or_closed_end_no_command_as_a_bug(
    place: Place, tmp_path: Path, command: str, status: int
) -> None:
    place.table()
    shell = ["sh", "-c", f"exec {sys.executable} -m icekit {command}"]
    here = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        shell, cwd=tmp_path, env=here, capture_output=True, text=True, check=False
    )

    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


# What is no fault of icekit's


@pytest.mark.parametrize(
    "number",
    [
        errno.ENOSPC,
        errno.EROFS,
        errno.EIO,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.EACCES,
        errno.EDQUOT,
        errno.ESTALE,
    ],
)
def test_whatever_a_disk_answers_is_said_of_its_file(number: int) -> None:
    said = str(outside(OSError(number, os.strerror(number), "/somewhere/a.html")))

    assert said.startswith("/somewhere/a.html ")
    assert said.endswith(".")


def test_a_lost_connection_too_many_files_and_no_memory_are_not_bugs() -> None:
    errors: list[BaseException] = [
        ConnectionRefusedError(111, "refused"),
        OSError(errno.EMFILE, "too many"),
        MemoryError(),
    ]

    assert [isinstance(outside(error), IcekitError) for error in errors] == [True, True, True]


@pytest.mark.parametrize(
    "error",
    [
        socket.gaierror(-2, "Name or service not known"),
        urllib.error.URLError("no route"),
        TimeoutError("timed out"),
        OSError(errno.EHOSTUNREACH, "No route to host"),
        OSError(errno.ENETUNREACH, "Network is unreachable"),
        ssl.SSLError(1, "certificate verify failed"),
    ],
)
def test_another_machine_that_does_not_answer_is_no_disk(error: Exception) -> None:
    said = outside(error)

    assert isinstance(said, CatalogUnreachable)
    assert str(error).removeprefix("[Errno ")[:10] in str(said)


def test_what_sqlite_says_of_a_file_is_no_bug_and_what_it_says_of_a_statement_is_one(
    tmp_path: Path,
) -> None:
    (tmp_path / "not.db").write_bytes(b"not a database" * 100)
    with (
        contextlib.closing(sqlite3.connect(tmp_path / "not.db")) as db,
        pytest.raises(sqlite3.DatabaseError) as of_file,
    ):
        db.execute("SELECT * FROM t")
    with (
        contextlib.closing(sqlite3.connect(":memory:")) as db,
        pytest.raises(sqlite3.DatabaseError) as of_statement,
    ):
        db.execute("SELECT no_such")
    with pytest.raises(sqlite3.DatabaseError) as of_use:
        db.execute("SELECT 1")

    assert isinstance(outside(of_file.value), DiskUnusable)
    assert outside(of_statement.value) is None
    assert outside(of_use.value) is None


def test_an_error_of_java_without_a_cause_keeps_what_it_says() -> None:
    error = Exception(
        "An error occurred while calling o188.filter.\n: java.lang.IllegalStateException: no such "
        "group\n\tat a.B.c(B.java:1)"
    )

    assert reason(error) == "java.lang.IllegalStateException: no such group"


@pytest.mark.spark
def test_what_spark_says_is_a_cause_or_a_bug_of_icekits_own_sql(lake: Lake) -> None:
    jvm: Any = lake.spark._jvm
    with pytest.raises(Exception, match="For input string") as of_java:
        jvm.java.lang.Long.parseLong("x")
    with pytest.raises(AnalysisException) as of_statement:
        lake.spark.sql("SELECT no_such FROM range(1)")
    with pytest.raises(AnalysisException) as of_routine:
        lake.spark.sql("SELECT no_such(1)")

    assert "For input string" in str(outside(of_java.value))
    assert "An error occurred while calling" not in str(outside(of_java.value))
    assert outside(of_statement.value) is None
    assert outside(of_routine.value) is None


@pytest.mark.parametrize(
    "bug",
    [
        ZeroDivisionError("division by zero"),
        KeyError("x"),
        TypeError(),
        AssertionError(),
        ValueError("x"),
        RecursionError(),
        # A file of icekit's own.
        FileNotFoundError(errno.ENOENT, "No such file", f"{Path(icekit.__file__).parent}/x.html"),
    ],
)
def test_a_bug_stays_one(bug: Exception) -> None:
    assert outside(bug) is None


@pytest.mark.parametrize(
    "said",
    [
        "org.apache.iceberg.exceptions.ValidationException: No file counts in manifest: "
        "/t/metadata/m0.avro",
        "java.lang.IllegalArgumentException: Cannot create data file from manifest: data file "
        "counts are missing.",
        "org.apache.avro.file.DataFileWriter$AppendWriteException: "
        'java.lang.NullPointerException: Cannot invoke "java.lang.Integer.intValue()"',
    ],
)
def test_a_commit_that_fails_for_want_of_counts_says_so(said: str) -> None:
    error = RuntimeError(f"An error occurred while calling o1.commit.\n: {said}\n\tat java.base/x")

    assert reason(error).startswith(
        "the snapshot's manifest list does not give the numbers of files"
    )


def test_a_pattern_is_looked_at_with_a_line_for_each_table_the_most_serious_first(
    place: Place, capsys: pytest.CaptureFixture[str], refused: Refused
) -> None:
    place.table("a")
    place.table("b").write_text("{")

    assert main(["look", "db.*"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[1:]] == [["db.b", "unreadable"], ["db.a", "healthy"]]
    assert main(["look", "db.*", "--fail-on", "critical"]) == 1
    assert main(["look", "db.a", "--fail-on", "warning"]) == 0
    assert "--json and --ref take one table" in refused("look", "db.*", "--json")
