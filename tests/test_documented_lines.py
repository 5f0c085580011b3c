"""The commands and the Python that README and docs/ print run as they are printed, in their order,
on a catalog ``prod``.
"""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

import icekit
from icekit.api import Lake
from tests.child import python
from tests.commands import command
from tests.test_docs import ROOT, TEXTS, blocks
from tests.tune.test_event_log import log, query

pytestmark = pytest.mark.spark

MERGE = """\
MERGE INTO prod.db.events t
USING (SELECT id AS event_id, TIMESTAMP '2026-01-02 00:00:00' AS event_time, 7L AS user_id
       FROM range(40, 60)) s
ON t.event_id = s.event_id AND t.event_time = s.event_time
WHEN MATCHED THEN UPDATE SET user_id = s.user_id
WHEN NOT MATCHED THEN INSERT *
"""
SCAN = (
    "BatchScan prod.db.events[] IcebergScan(table=prod.db.events, schemaId=0, snapshotId=1, "
    "branch=null, filters=user_id = 3, runtimeFilters=, groupedBy=) RuntimeFilters: []"
)
# Other programs' lines, those that build and restore the lab, which tests/lab has, and one that
# becomes JupyterLab, which tests/notebooks has.
OTHERS = re.compile(r"(pip|make|papermill|jq|icekit lab|icekit look lab|icekit notebook)\b")
# What has nothing to do here, and says so.
NOTHING_TO_DO = {"--resume": "no unfinished run", "--clear RUN": "does not block"}


@pytest.fixture(scope="module")
def world(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the files that the pages name, and a catalog with their tables."""
    folder = tmp_path_factory.mktemp("documented")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("PYICEBERG_CATALOG__PROD__TYPE", "sql")
        patch.setenv("PYICEBERG_CATALOG__PROD__URI", f"sqlite:///{folder}/prod.db")
        patch.setenv("PYICEBERG_CATALOG__PROD__WAREHOUSE", str(folder / "warehouse"))
        patch.setenv("ICEKIT_LEDGER", str(folder / "ledger.db"))
        sql = icekit.connect("prod").spark.sql
        sql("CREATE NAMESPACE prod.db")
        sql(
            "CREATE TABLE prod.db.events (event_id BIGINT, event_time TIMESTAMP, user_id BIGINT) "
            "PARTITIONED BY (days(event_time)) TBLPROPERTIES ('format-version'='2', "
            "'write.delete.mode'='merge-on-read')"
        )
        for table in ("orders", "customers_eu", "events_archive"):
            sql(f"CREATE TABLE prod.db.{table} AS SELECT id FROM range(3)")
        folder.joinpath("nightly.sql").write_text(MERGE)
        folder.joinpath("logs").mkdir()
        event = query(0, "prod.db.events")
        event["sparkPlanInfo"]["children"][0]["children"][0]["simpleString"] = SCAN
        log(folder / "logs" / "app-1", event)
        for state in ("before", "after"):
            for first in range(0, 60, 10):
                sql(
                    "INSERT INTO prod.db.events SELECT id, TIMESTAMP '2026-01-02 00:00:00', id % 7 "
                    f"FROM range({first}, {first + 10})"
                )
            status, printed = command("look", "db.events", "--catalog", "prod", "--json")
            assert status == 0
            folder.joinpath(state).mkdir()
            folder.joinpath(state, "db.events.json").write_text(printed)
        sql("ALTER TABLE prod.db.events CREATE BRANCH audit")
        sql("DELETE FROM prod.db.events WHERE user_id = 3")
        begin_long_ago(folder)
        yield folder


def begin_long_ago(folder: Path) -> None:
    """Have the first commit of the events be one of the last year, and the others of yesterday."""
    newest = max(folder.glob("warehouse/db/events/metadata/*.metadata.json"))
    metadata = json.loads(newest.read_text())
    first = metadata["snapshots"][0]["snapshot-id"]
    for entry in (*metadata["snapshots"], *metadata["snapshot-log"]):
        entry["timestamp-ms"] -= 86_400_000
        if entry["snapshot-id"] == first:
            entry["timestamp-ms"] = 1_700_000_000_000
    newest.write_text(json.dumps(metadata))
    newest.with_name(f".{newest.name}.crc").unlink()
    icekit.connect("prod").spark.sql("REFRESH TABLE prod.db.events")


def run(line: str) -> tuple[int, str]:
    """Run a line of a shell that is one command of icekit's."""
    program, *words = shlex.split(line.replace("/logs", str(Path.cwd() / "logs")), comments=True)
    assert program == "icekit"
    target = words.pop() if words[-2:-1] == [">"] else None
    status, printed = command(*(word for word in words if word != ">"))
    if target is not None:
        Path(target).write_text(printed)
    return status, printed


def lines(page: str) -> list[str]:
    shell = "\n".join(blocks(TEXTS[page], "sh"))
    return [
        line
        for line in re.sub(r"\\\n +", "", shell).splitlines()
        if line and not line.startswith("#") and not OTHERS.match(line)
    ]


@pytest.mark.parametrize("page", [page for page in TEXTS if lines(page)])
@pytest.mark.usefixtures("world")
def test_the_commands_of_a_page_run_as_they_are_printed(page: str) -> None:
    for line in lines(page):
        status, printed = run(line)

        expected = next((text for option, text in NOTHING_TO_DO.items() if option in line), None)
        assert (status == 0) if expected is None else (expected in printed), f"{line}\n{printed}"
        if page == "README.md" and "--execute" in line:
            assert "no row changed" in printed
        if "schedule example" in line:
            as_the_comments_say()


def as_the_comments_say() -> None:
    """The example for a catalog that a profile names, at any hour."""
    policy = Path("policy.yaml").read_text().replace("# catalog: prod", "catalog: prod")
    Path("policy.yaml").write_text(re.sub("^hours: .*$", "", policy, flags=re.M))


@pytest.mark.parametrize(
    "line",
    re.findall(
        r"^papermill .*",
        "\n".join(blocks("\n".join(TEXTS.values()), "sh")).replace("\\\n", ""),
        re.M,
    ),
)
def test_papermill_runs_the_notebooks_as_it_is_printed(line: str, world: Path) -> None:
    words = shlex.split(line.replace("notebooks/", f"{ROOT}/notebooks/"))
    ended = python("-m", *words, cwd=world)

    assert ended.returncode == 0, ended.stderr[-3000:]


@pytest.mark.parametrize("page", ["README.md", "docs/compact.md", "docs/platforms.md"])
@pytest.mark.usefixtures("world")
def test_the_python_of_a_page_runs_as_it_is_printed(page: str, lake: Lake) -> None:
    names = {"icekit": icekit, "spark": lake.spark}
    for code in blocks(TEXTS[page], "python"):
        exec(code, names)
