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

import icekit
from icekit.cli.main import main
from icekit.common.errors import CatalogUnreachable, DiskUnusable
from icekit.common.saving import write_text
from icekit.engine.errors import environment_error, reason
from tests.damage import on_disk
from tests.offline import IDS, lake_in

Create = Callable[..., Path]
Refused = Callable[..., str]
ODD = "esc\x1b[31m\u202eodd"


@pytest.fixture
def create(tmp_path: Path) -> Iterator[Create]:
    """Makes an empty table in a lake without Spark; returns its metadata file, which a test may
    spoil.
    """
    with lake_in(tmp_path / "lake") as catalog:

        def make(name: str = "t", **properties: str) -> Path:
            made = catalog.create_table(("db", name), IDS, properties=properties)
            return on_disk(made.metadata_location)

        yield make


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
def refused(create: Create, capsys: pytest.CaptureFixture[str]) -> Refused:
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
        ("write.target-file-size-bytes", "512 MB"),
        ("write.target-file-size-bytes", "9" * 40),
        ("write.delete.target-file-size-bytes", "0"),
        ("write.parquet.row-group-size-bytes", "0"),
        ("write.metadata.previous-versions-max", "many"),
        ("history.expire.max-snapshot-age-ms", "5 days"),
        ("history.expire.min-snapshots-to-keep", ""),
        ("write.parquet.bloom-filter-ndv.column.id", "lots"),
    ],
)
def test_a_number_that_is_none_is_refused_by_the_name_of_the_property(
    create: Create, refused: Refused, name: str, value: str
) -> None:
    create(**{name: value})

    said = refused("look", "db.t")

    assert f"The table property {name} is {value[:30]!r}"[:80] in said
    assert f"UNSET TBLPROPERTIES ('{name}')" in said


def spoilt(path: Path, **changes: Any) -> None:
    """Change what a metadata file says."""
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_of_damaged_metadata_there_is_no_card_and_no_healthy_report(
    create: Create, refused: Refused, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    no_metadata = create("none")
    no_metadata.write_bytes(b"\x00\xff" * 50)
    assert no_metadata.name in refused("look", "db.none")
    spoilt(create(), **{"current-snapshot-id": 99})

    assert "current-snapshot-id is 99" in refused("look", "db.t")
    assert main(["report", "db.t", "--fail-on", "warning", "--output", str(tmp_path / "out")]) == 2
    assert "db.t: misconfigured" in capsys.readouterr().out


def test_a_profile_whose_catalog_reads_metadata_itself_names_what_is_damaged(
    create: Create,
    refused: Refused,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE2__URI", f"sqlite:///{tmp_path}/lake/catalog.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE2__TYPE", "sql")
    path = create()
    with contextlib.closing(sqlite3.connect(tmp_path / "lake" / "catalog.db")) as db, db:
        db.execute("UPDATE iceberg_tables SET catalog_name = 'lake2'")
        db.execute("UPDATE iceberg_namespace_properties SET catalog_name = 'lake2'")
    spoilt(path, **{"format-version": "two"})

    said = refused("look", "db.t", "--catalog", "lake2")

    assert "returns damaged metadata: " in said
    assert "format-version" in said

    spoilt(path, **{"format-version": 4})
    said = refused("look", "db.t", "--catalog", "lake2")

    assert f"db.t has format version 4, which icekit {icekit.__version__} does not read" in said
    assert "register_table" not in said


# Names


def test_a_name_cannot_command_the_terminal(
    create: Create, capsys: pytest.CaptureFixture[str]
) -> None:
    create(ODD)

    for arguments in (
        ["admin", "tables"],
        ["look", f"db.{ODD}"],
        ["look", f"db.{ODD}x"],
        ["look", "db.t", f"--{ODD}"],
    ):
        main(arguments)
        said = capsys.readouterr()
        assert said.out + said.err
        assert not re.search(r"[\x1b\u202e]", said.out + said.err), arguments


def test_a_name_that_xml_has_no_place_for_costs_no_other_table_its_case(
    create: Create, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spoilt(create(ODD), **{"format-version": 99})
    spoilt(create("t"), **{"format-version": 99})
    junit = tmp_path / "report.xml"

    assert main(["report", "db.*", "--junit", str(junit), "--output", str(tmp_path / "out")]) == 2
    assert "\x1b" not in capsys.readouterr().out
    assert sorted(case.attrib["name"] for case in ElementTree.parse(junit).iter("testcase")) == [
        "db.`esc\N{REPLACEMENT CHARACTER}[31m\N{REPLACEMENT CHARACTER}odd`",
        "db.t",
    ]


def test_a_name_of_half_characters_is_no_name(refused: Refused, tmp_path: Path) -> None:
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

    assert str(tmp_path / "page.html") in str(environment_error(caught.value))
    assert list(tmp_path.iterdir()) == []


def nothing(_: Path) -> None:
    """Make nothing."""


@pytest.mark.parametrize(
    ("output", "make", "sentence"),
    [
        ("out", lambda path: path.write_text(""), "out cannot be written"),
        ("out", lambda path: (path / "index.html.partial").mkdir(parents=True), "out/"),
        ("x" * 5000, nothing, "File name too long"),
        ("/proc/x", nothing, "choose another path"),
    ],
    ids=["file", "folder in it", "too long", "/proc"],
)
def test_a_folder_that_cannot_be_written_is_named(
    create: Create,
    refused: Refused,
    tmp_path: Path,
    output: str,
    make: Callable[[Path], object],
    sentence: str,
) -> None:
    create()
    make(tmp_path / output)

    message = refused("report", "db.t", "--output", tmp_path / output)

    assert sentence in message
    assert len(message) < 500


@pytest.mark.parametrize(
    ("command", "status"),
    [
        ("look f.nope 2>/dev/full", 2),
        ("plan 2>/dev/full", 2),
        ("look db.t >/dev/full", 2),
        ("--help >/dev/full", 2),
        ("admin tables >&-", 0),
        ("look db.t >&-", 0),
        ("look f.nope 2>&-", 2),
        pytest.param("report db.t --output out >&-", 0, marks=pytest.mark.slow),
        pytest.param("report db.t --output out >&- 2>&- <&-", 0, marks=pytest.mark.slow),
    ],
)
def test_streams_that_are_full_or_closed_end_no_command_as_a_bug(
    create: Create, tmp_path: Path, command: str, status: int
) -> None:
    create()
    shell = ["sh", "-c", f"exec {sys.executable} -m icekit {command}"]
    here = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        shell, cwd=tmp_path, env=here, capture_output=True, text=True, check=False
    )

    assert done.returncode == status, done.stderr
    if ">/dev/full" in command.split():
        assert "Standard output cannot be written or read: No space left" in done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


# What is no fault of icekit's


#: Errors by what they are of: this machine, another one, or icekit itself.
ERRORS: dict[type, list[Exception]] = {
    DiskUnusable: [
        *(
            OSError(number, os.strerror(number), "/somewhere/a.html")
            for number in (errno.ENOSPC, errno.EROFS, errno.ENOTDIR, errno.EDQUOT)
        ),
        OSError(errno.EMFILE, "too many"),
        MemoryError("memory"),
    ],
    CatalogUnreachable: [
        socket.gaierror(-2, "Name or service not known"),
        urllib.error.URLError("no route"),
        TimeoutError("timed out"),
        OSError(errno.EHOSTUNREACH, "No route to host"),
        ConnectionRefusedError(111, "refused"),
        ssl.SSLError(1, "certificate verify failed"),
    ],
    type(None): [
        ZeroDivisionError("division by zero"),
        KeyError("x"),
        TypeError(),
        AssertionError(),
        ValueError("x"),
        RecursionError(),
    ],
}


@pytest.mark.parametrize(
    ("kind", "error"), [(kind, error) for kind, errors in ERRORS.items() for error in errors]
)
def test_an_error_of_a_disk_or_another_machine_is_said_of_it_and_a_bug_stays_one(
    kind: type, error: Exception
) -> None:
    explained = environment_error(error)

    assert isinstance(explained, kind)
    if explained is not None:
        assert str(error.args[-1]) in str(explained)
    if isinstance(error, OSError) and error.filename:
        assert str(explained).startswith("/somewhere/a.html ")


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

    assert isinstance(environment_error(of_file.value), DiskUnusable)
    assert environment_error(of_statement.value) is None
    assert environment_error(of_use.value) is None


def test_an_error_of_java_without_a_cause_keeps_what_it_says() -> None:
    error = Exception(
        "An error occurred while calling o188.filter.\n: java.lang.IllegalStateException: no such "
        "group\n\tat a.B.c(B.java:1)"
    )

    assert reason(error) == "java.lang.IllegalStateException: no such group"


def test_a_commit_that_fails_for_want_of_counts_says_so() -> None:
    error = RuntimeError(
        "An error occurred while calling o1.commit.\n: "
        "org.apache.iceberg.exceptions.ValidationException: No file counts in manifest: "
        "/t/metadata/m0.avro\n\tat java.base/x"
    )

    assert reason(error).startswith(
        "the snapshot's manifest list does not give the numbers of files"
    )


def test_a_pattern_is_looked_at_with_a_line_for_each_table_the_most_serious_first(
    create: Create, capsys: pytest.CaptureFixture[str], refused: Refused
) -> None:
    create("a")
    create("b").write_text("{")

    assert main(["look", "db.*"]) == 2
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1:3] for line in lines[3:5]] == [
        ["unreadable", "db.b"],
        ["healthy", "db.a"],
    ]
    assert main(["look", "db.*", "--fail-on", "critical"]) == 2
    assert main(["look", "db.a", "--fail-on", "warning"]) == 0
    assert "--ref takes one table" in refused("look", "db.*", "--ref", "main")
