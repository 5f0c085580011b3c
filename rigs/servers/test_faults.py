"""A catalog that fails now and then: nothing is lost or done twice, and what cannot be done is said
in a sentence.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from icekit.api import Lake
from icekit.cli.main import main
from rigs.servers.conftest import connected
from rigs.servers.proxy import Fault, Proxy
from tests.deletes.tables import Table

pytestmark = [pytest.mark.spark, pytest.mark.servers]

COMPACT = (
    "--catalog",
    "faulty",
    "--execute",
    "--leave-alone",
    "0 minutes",
    "--min-files",
    "2",
    "--max-action-partitions",
    "1",
)


@pytest.fixture(scope="module")
def proxy(rest_on_s3: dict[str, str]) -> Iterator[Proxy]:
    """Before the REST catalog."""
    with Proxy(rest_on_s3["URI"]).serving() as found:
        yield found


@pytest.fixture(scope="module")
def faulty(
    proxy: Proxy, rest_on_s3: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Lake]:
    """The catalog behind the proxy, as the profile ``faulty``."""
    profile = rest_on_s3 | {"URI": proxy.address}
    with (
        pytest.MonkeyPatch.context() as patch,
        connected("faulty", profile, tmp_path_factory) as lake,
    ):
        patch.chdir(tmp_path_factory.mktemp("work"))
        lake.spark.sql("CREATE NAMESPACE IF NOT EXISTS faulty.faults")
        yield lake


@pytest.fixture
def table(faulty: Lake, proxy: Proxy, request: pytest.FixtureRequest) -> Iterator[Table]:
    """Three partitions of six files each; afterwards the catalog works again."""
    name = re.sub(r"\W", "_", request.node.name)
    made = Table(faulty, "faults", name).create("id bigint, name string, part int", by="part")
    for n in range(6):
        made.sql(
            f"INSERT INTO {{t}} SELECT id, 'n', CAST(id % 3 AS INT) FROM range({n * 9}, "
            f"{n * 9 + 9})"
        )
    yield made
    proxy.fault = lambda *_: None


def committing(table: Table, method: str, path: str) -> bool:
    """Whether a request commits to this table."""
    return method == "POST" and path.endswith(f"/tables/{table.name[1]}")


def test_a_commit_whose_answer_is_lost_is_neither_lost_nor_done_twice(
    table: Table, proxy: Proxy, capfd: pytest.CaptureFixture[str]
) -> None:
    before, started, lost = table.rows(), len(table.snapshots()), list[str]()

    def fault(method: str, path: str, _number: int) -> Fault | None:
        if committing(table, method, path) and not lost:
            lost.append(path)
            return "lost"
        return None

    proxy.fault = fault
    first = main(["compact", ".".join(table.name), *COMPACT])
    proxy.fault = lambda *_: None
    said = capfd.readouterr()
    assert lost, (said, proxy.requests[-30:])
    assert "Traceback" not in said.err
    table.files.refresh()
    assert table.rows() == before
    if first != 0:
        assert main(["compact", ".".join(table.name), "--catalog", "faulty", "--resume"]) == 0, (
            capfd.readouterr()
        )

    table.files.refresh()
    assert table.rows() == before
    assert len(table.sql("SELECT file_path FROM {t}.data_files")) == 3
    assert len(table.snapshots()) == started + 3


@pytest.mark.parametrize("answer", ["503 after", "503 again", "500 after", "409 after"])
def test_a_commit_that_is_answered_with_an_error_after_it_was_made_is_done_once(
    table: Table, proxy: Proxy, capfd: pytest.CaptureFixture[str], answer: Fault
) -> None:
    before, started, answered = table.rows(), len(table.snapshots()), list[str]()

    def fault(method: str, path: str, _number: int) -> Fault | None:
        if committing(table, method, path) and not answered:
            answered.append(path)
            return answer
        return None

    proxy.fault = fault
    status = main(["compact", ".".join(table.name), *COMPACT])
    proxy.fault = lambda *_: None

    assert answered
    assert status == 0, capfd.readouterr()
    table.files.refresh()
    assert table.rows() == before
    assert len(table.sql("SELECT file_path FROM {t}.data_files")) == 3
    assert len(table.snapshots()) == started + 3


def test_a_server_that_is_busy_now_and_then_is_asked_again(
    table: Table, proxy: Proxy, capfd: pytest.CaptureFixture[str]
) -> None:
    before = table.rows()
    # The client of Java asks again; the one of Python does not.
    proxy.fault = lambda method, path, number: (
        "503" if committing(table, method, path) and number % 2 else None
    )

    status = main(["compact", ".".join(table.name), *COMPACT])

    proxy.fault = lambda *_: None
    said = capfd.readouterr()
    assert "Traceback" not in said.err
    table.files.refresh()
    assert table.rows() == before
    assert status == 0 or "--resume" in said.out + said.err


def test_a_token_that_expires_in_the_middle_stops_the_run_and_a_resume_ends_it(
    table: Table, proxy: Proxy, capfd: pytest.CaptureFixture[str]
) -> None:
    before, commits, refused = table.rows(), list[str](), list[str]()

    def fault(method: str, path: str, _number: int) -> Fault | None:
        if committing(table, method, path):
            commits.append(path)
        if len(commits) > 1:
            refused.append(path)
            return "401"
        return None

    proxy.fault = fault
    status = main(["compact", ".".join(table.name), *COMPACT])
    proxy.fault = lambda *_: None
    said = capfd.readouterr()

    assert refused
    assert status != 0, said
    assert "Traceback" not in said.err
    assert "credential or token" in said.out + said.err
    table.files.refresh()
    assert table.rows() == before
    assert main(["compact", ".".join(table.name), "--catalog", "faulty", "--resume"]) == 0, (
        capfd.readouterr()
    )
    table.files.refresh()
    assert table.rows() == before
    assert len(table.sql("SELECT file_path FROM {t}.data_files")) == 3


@pytest.mark.parametrize(
    ("fault", "names"), [("503", "faulty"), ("401", "credential or token"), ("half", "faulty")]
)
@pytest.mark.parametrize("command", ["look", "compact"])
def test_a_catalog_that_does_not_answer_is_named(
    table: Table,
    proxy: Proxy,
    fault: Fault,
    names: str,
    command: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    proxy.fault = lambda *_: fault

    status = main([command, ".".join(table.name), "--catalog", "faulty"])

    err = capfd.readouterr().err
    assert status == 2, err
    assert names in err
    assert "bug in icekit" not in err
    assert "Traceback" not in err


def test_a_slow_catalog_is_waited_for(
    table: Table, proxy: Proxy, capfd: pytest.CaptureFixture[str]
) -> None:
    proxy.fault = lambda *_: "slow"

    assert main(["look", ".".join(table.name), "--catalog", "faulty"]) in {0, 1}, capfd.readouterr()


@pytest.mark.parametrize(("command", "most"), [("look", 6), ("report", 40), ("compact", 60)])
def test_a_command_asks_the_catalog_only_so_often(
    table: Table, proxy: Proxy, command: str, most: int
) -> None:
    proxy.requests.clear()

    assert main([command, ".".join(table.name), "--catalog", "faulty"]) in {0, 1}

    assert len(proxy.requests) <= most, proxy.requests
