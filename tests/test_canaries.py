"""A secret of every kind is put in, a server repeats them all, and no output that there is shows
one.
"""

import json
import os
import re
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from pyiceberg.catalog.sql import SqlCatalog

from tests.child import python
from tests.offline import IDS

# What the profile holds, by key; the values look like nothing that a pattern would know.
PROFILE = {
    "credential": "icekit:canary/of credential",
    "token": "canary~of~token",
    "header.X-Api-Key": "canary-of-api-key",
    "header.X-Plain": "Scheme canary-of-header",
    "s3.access-key-id": "canaryofkeyid",
    "s3.secret-access-key": "canary+of/s3<secret>&'",
    "s3.session-token": "canary-of-session",
    "adls.account-key": "canary-of-account-key==",
    "adls.connection-string": "AccountName=a;AccountKey=canaryofconnection",
    "gcs.oauth2.token": "canary-of-gcs",
    "spark.adls.sas-token.account": "sv=1&sig=canary-of-sas",
    "spark.jdbc.password": "canary of password",
    "spark.hadoop.fs.azure.account.key.account": "canary-of-hadoop-key",
    "spark.table-default.note": "https://user:canary-of-user-info@host/",
}
_BODY = "MIICcanaryofprivatekeyMIIC"
# What nobody has told icekit: a server hands it out, or shows it in an error.
FOREIGN = (
    "canary.of.oauth",
    "canary.of.vended",
    "canary-of-vended-secret",
    "canary-of-signature",
    "canary-of-security-token",
    "canary-of-presigned-id",
    "canary%2Fof%2Fsas%2Fsignature",
    "canary-of-foreign-user",
    _BODY,
)
_LEAKED = (
    "https://bucket.host/k?X-Amz-Credential=canary-of-presigned-id&X-Amz-Signature=canary-of-signature&X-Amz-Security-Token=canary-of-security-token\n"
    "https://account.host/k?sv=2024&sig=canary%2Fof%2Fsas%2Fsignature&se=2030\nftp://me:canary-of-foreign-user@host/\n"
    f"-----BEGIN PRIVATE KEY-----\n{_BODY}\n{_BODY}\n-----END PRIVATE KEY-----\n"
)
CANARIES = {
    canary for text in (*PROFILE.values(), *FOREIGN) for canary in re.findall("canary[^@&]*", text)
}


def shown(text: str) -> list[str]:
    """The canaries that a text holds."""
    # The key's id is no secret; it may not be in the event log only because it comes with the other
    # half.
    return sorted(canary for canary in CANARIES - {"canaryofkeyid"} if canary in text)


class _Repeating(BaseHTTPRequestHandler):
    """A REST catalog that serves ``db.good``, and answers all else with an error that repeats what
    it was sent.
    """

    metadata: str

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = self.path.partition("?")[0]
        known: dict[str, Any] = {
            "/v1/config": {"defaults": {}, "overrides": {}},
            "/v1/oauth/tokens": {
                "access_token": "canary.of.oauth",
                "token_type": "bearer",
                "expires_in": 3600,
            },
            "/v1/namespaces": {"namespaces": [["db"]] if "parent" not in self.path else []},
            "/v1/namespaces/db": {"namespace": ["db"], "properties": {}},
            "/v1/namespaces/db/tables": {
                "identifiers": [{"namespace": ["db"], "name": name} for name in ("bad", "good")]
            },
        }
        if path == "/v1/namespaces/db/tables/good" and self.command == "GET":
            config = {
                "token": "canary.of.vended",
                "s3.secret-access-key": "canary-of-vended-secret",
            }
            body: Any = {
                "metadata-location": self.metadata,
                "metadata": json.loads(Path(self.metadata).read_text()),
                "config": config,
            }
            self._send(200, body)
        elif path in known and self.command in {"GET", "POST"}:
            self._send(200, known[path])
        else:
            sent = dict(self.headers.items())
            bare = sent.get("Authorization", "").removeprefix("Bearer ")
            said = (
                f"no: Authorization={sent.get('Authorization')}, {json.dumps(sent)} {sent} "
                f"invalid token: {bare} {_LEAKED}"
            )
            status = 500 if path.endswith("/bad") else 403
            self._send(status, {"error": {"message": said, "type": "NoException", "code": status}})

    do_GET = do_POST = do_DELETE = _answer  # noqa: N815

    def _send(self, status: int, body: Any) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_HEAD(self) -> None:
        self.send_response(404)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing to the terminal."""


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[Mapping[str, str]]:
    """What a process needs to use the profile ``hostile``, while its server runs."""
    with SqlCatalog(
        "made", uri=f"sqlite:///{tmp_path}/made.db", warehouse=f"file://{tmp_path}/warehouse"
    ) as catalog:
        catalog.create_namespace("db")
        table = catalog.create_table(("db", "good"), IDS)
        for start in range(6):
            table.append(pa.table({"id": [start]}))
        handler = type(
            "Handler", (_Repeating,), {"metadata": table.metadata_location.removeprefix("file://")}
        )
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        profile = {
            "uri": f"http://127.0.0.1:{server.server_port}",
            "type": "rest",
            "spark.io-impl": "org.apache.iceberg.hadoop.HadoopFileIO",
        } | PROFILE
        (tmp_path / ".pyiceberg.yaml").write_text(yaml.safe_dump({"catalog": {"hostile": profile}}))
        yield {
            **os.environ,
            "PYICEBERG_HOME": str(tmp_path),
            "ICEKIT_LAKE": str(tmp_path / "lake"),
            "PYTHONPATH": str(Path(__file__).parents[1]),
        }
        server.shutdown()


@pytest.mark.slow
def test_reports_and_all_that_is_written_with_them_show_no_secret(
    environment: Mapping[str, str], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    arguments = (
        f"--debug report db.* --catalog hostile --collector local --output {out} --history "
        f"{out}/history.db --junit {out}/junit.xml"
    )
    report = python("-m", "icekit", *arguments.split(), env=environment)
    look = python(
        "-m", "icekit", "--debug", "look", "db.bad", "--catalog", "hostile", env=environment
    )
    written = {
        path.name: path.read_bytes().decode(errors="replace")
        for path in out.rglob("*")
        if path.is_file()
    }

    assert report.returncode == 2, report.stderr
    assert look.returncode == 2
    assert {
        "index.html",
        "db.good.html",
        "db.good.json",
        "db.good.ipynb",
        "junit.xml",
        "history.db",
    } <= set(written)
    said = {"report": report.stdout + report.stderr, "look": look.stdout + look.stderr, **written}
    assert "Authorization=***" in said["look"]
    assert "***" in said["junit.xml"]
    assert "***" in said["index.html"]
    assert {name: shown(text) for name, text in said.items() if shown(text)} == {}


@pytest.mark.spark
def test_spark_its_event_log_and_pages_and_a_run_and_its_ledger_show_no_secret(
    environment: Mapping[str, str], tmp_path: Path
) -> None:
    (tmp_path / "events").mkdir()
    settings = (
        "spark.master=local[1] spark.driver.memory=1g spark.sql.shuffle.partitions=1 "
        "spark.ui.enabled=true spark.ui.port=0 spark.eventLog.enabled=true "
        "spark.eventLog.compress=false spark.eventLog.rolling.enabled=false "
        f"spark.eventLog.dir=file://{tmp_path}/events "
        "spark.hadoop.fs.azure.account.key.other=canary-of-hadoop-key"
    )
    ran = python(
        Path(__file__).with_name("canaries_in_spark.py"),
        tmp_path,
        env={**environment, "ICEKIT_SPARK_CONF": settings},
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    said = {"terminal": ran.stdout + ran.stderr, **json.loads((tmp_path / "said.json").read_text())}
    for log in (tmp_path / "events").iterdir():
        for line in log.read_text().splitlines():
            event = json.loads(line)["Event"].rpartition(".")[2]
            said[event] = said.get(event, "") + line
    with sqlite3.connect(tmp_path / "ledger.db") as ledger:
        said["ledger"] = "\n".join(ledger.iterdump())
    said |= {path.name: path.read_text() for path in (tmp_path / "out").iterdir()}

    assert {
        "SET",
        "SET -v",
        "environment",
        "environment.json",
        "sql.json",
        "ps",
        "SparkListenerJobStart",
        "SparkListenerStageSubmitted",
    } <= set(said)
    assert "spark.sql.catalog.hostile" in said["SparkListenerJobStart"]
    assert "Authorization=***" in said["terminal"]
    assert "***" in said["ledger"]
    assert {name: shown(text) for name, text in said.items() if shown(text)} == {}
    events = "".join(text for name, text in said.items() if name.startswith("Spark"))
    assert "canaryofkeyid" not in events
