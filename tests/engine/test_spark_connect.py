"""Over a real Connect server, look, report and plan work; what tries or changes a table says that
it needs a classic session.
"""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest

from icekit.api import Lake
from icekit.engine.spark_conf import SPARK_RUNTIME, SQLITE_JDBC
from tests.child import python
from tests.commands import leaves
from tests.serving import free_port, serving

pytestmark = pytest.mark.spark

POLICY = """
name: nightly
catalog: lake
output: pass
rules:
  - match: db.small
"""
CLASSIC = "This needs a classic Spark session"
#: Each command with its arguments; a part of the error where Connect has no way to do it, and None
# where it has.
COMMANDS: dict[str, str | None] = {
    "look db.small": None,
    "plan db.small": None,
    "compare db.small db.small": None,
    "report db.small --output pages": None,
    "compact db.small": None,
    "compact db.small --trial": CLASSIC,
    "compact db.small --execute": CLASSIC,
    "convert db.deletes": CLASSIC,
    "maintain db.small": None,
    "maintain db.small --execute": None,
    "tune file-sizes db.small": CLASSIC,
    "tune metrics-columns db.small": CLASSIC,
    "tune layout db.small": CLASSIC,
    "tune write-mode db.deletes --operation delete": CLASSIC,
    "tune planning db.small": CLASSIC,
    "review-merge merge.sql": CLASSIC,
    "schedule check policy.yaml": None,
    "schedule example": None,
    "schedule run policy.yaml": None,
    "schedule recipe cron policy.yaml": None,
    "pack db.small small.icekit.zip": None,
    "unpack small.icekit.zip": "embedded lake",
    "demo": "embedded lake",
    "lab empty": "embedded lake",
    "admin tables": None,
    "admin clones": None,
}
#: What an error that was not foreseen looks like.
UNFORESEEN = re.compile(r"bug in icekit|Traceback|JVM_ATTRIBUTE|^\{\"ts\"", re.M)


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Connect server with Iceberg and a catalog of its own, ``lake``."""
    folder, port = tmp_path_factory.mktemp("server"), free_port()
    catalog = "spark.sql.catalog.lake"
    settings = {
        "spark.master": "local[2]",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.type": "jdbc",
        f"{catalog}.jdbc.schema-version": "V1",
        f"{catalog}.uri": f"jdbc:sqlite:file:{folder}/catalog.db?busy_timeout=30000",
        f"{catalog}.warehouse": str(folder / "warehouse"),
    }
    home = Path(pyspark.__file__).parent
    command = [
        str(home / "bin" / "spark-submit"),
        "--class",
        "org.apache.spark.sql.connect.service.SparkConnectServer",
    ]
    command += ["--packages", f"{SPARK_RUNTIME},{SQLITE_JDBC}"]
    command += [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
    with serving([*command, "spark-internal"], port, folder / "log", {"SPARK_HOME": str(home)}):
        yield f"sc://127.0.0.1:{port}"


def in_process(remote: str, folder: Path, *command: str, said: str = "") -> str:
    """What a Python process that has the server's address prints."""
    environment = {
        "SPARK_REMOTE": remote,
        "ICEKIT_LEDGER": str(folder / "ledger.db"),
        "ICEKIT_LAKE": str(folder / "none"),
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    done = python(*command, input=said, cwd=folder, env=os.environ | environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


SETUP = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
spark.sql("CREATE NAMESPACE lake.db")
spark.sql("CREATE TABLE lake.db.small (id BIGINT, name STRING) USING iceberg TBLPROPERTIES ('icekit.filter-columns' = 'id')")
for n in range(8):
    spark.sql(f"INSERT INTO lake.db.small VALUES ({n}, 'n{n}')")
spark.sql("CREATE TABLE lake.db.deletes USING iceberg TBLPROPERTIES ('write.delete.mode' = 'merge-on-read') AS SELECT /*+ COALESCE(1) */ id FROM range(100)")
spark.sql("DELETE FROM lake.db.deletes WHERE id % 10 = 0")
"""
ROWS = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
rows = sorted(tuple(row) for row in spark.table("lake.db.small").collect())
print(rows == [(n, f"n{n}") for n in range(8)], spark.table("lake.db.small.snapshots").count())
"""


@pytest.fixture(scope="module")
def ended(remote: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """How each command and each verb ended, in one process."""
    folder = tmp_path_factory.mktemp("client")
    (folder / "merge.sql").write_text(
        "MERGE INTO db.deletes t USING db.small s ON t.id = s.id WHEN MATCHED THEN DELETE"
    )
    (folder / "policy.yaml").write_text(POLICY)
    in_process(remote, folder, "-c", SETUP)
    said = in_process(
        remote,
        folder,
        "-m",
        "tests.engine.connected",
        said=json.dumps([c.split() for c in COMMANDS]),
    )
    ended: dict[str, dict[str, Any]] = json.loads(said)
    ended["rows"] = {"said": in_process(remote, folder, "-c", ROWS)}
    return ended


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_gives_a_result_or_says_what_to_do_instead(
    ended: dict[str, dict[str, Any]], command: str
) -> None:
    instead, (status, said) = COMMANDS[command], (ended[command]["status"], ended[command]["said"])

    assert not UNFORESEEN.search(said), said
    assert status in ({0, 1} if instead is None else {2}), said
    assert (instead or "") in said


def test_every_command_is_among_them() -> None:
    # `icekit notebook` only starts JupyterLab.
    assert [
        leaf.name
        for leaf in leaves()
        if not any(
            f"icekit {command} ".startswith(f"{leaf.name} ") for command in (*COMMANDS, "notebook")
        )
    ] == []


@pytest.mark.parametrize("verb", [name for name in vars(Lake) if not name.startswith("_")])
def test_a_verb_gives_a_result_or_an_error_that_names_the_way(
    ended: dict[str, dict[str, Any]], verb: str
) -> None:
    found = ended[f"Lake.{verb}"]

    assert found["status"] in {0, 2}, found["said"]
    if found["status"] == 2:
        assert re.search(f"{CLASSIC}|without --resume|embedded lake", found["said"]), found["said"]


def test_nothing_is_written_over_connect(ended: dict[str, dict[str, Any]]) -> None:
    assert ended["rows"]["said"].split() == ["True", "8"]


def test_a_server_that_is_not_there_is_named_with_the_way_out(tmp_path: Path) -> None:
    address = f"sc://127.0.0.1:{free_port()}/;token=do-not-show-this-token"
    environment = os.environ | {"SPARK_REMOTE": address}
    done = python("-m", "icekit", "look", "db.small", cwd=tmp_path, env=environment)

    assert done.returncode == 2
    assert re.fullmatch(
        r"icekit: No Spark Connect server answers at 127\.0\.0\.1:\d+ \(SPARK_REMOTE\)\. "
        r".*unset SPARK_REMOTE.*\n",
        done.stderr,
    )
    assert "do-not-show" not in done.stdout + done.stderr
