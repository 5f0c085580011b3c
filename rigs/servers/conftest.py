"""Real servers, each started once, on loopback: Iceberg's REST catalog over S3, and PostgreSQL."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyspark
import pytest

import icekit
from icekit.api import Lake
from icekit.engine import session
from tests.serving import free_port, serving

BUILD = Path(__file__).parents[2] / "build" / "servers"
#: Not that of any real server, and to be found nowhere in what icekit writes.
SECRET = "s3cr3t-of-the-servers-tests"


_KEYS = {"ROOT_ACCESS_KEY": "icekit", "ROOT_SECRET_KEY": SECRET, "AWS_REGION": "us-east-1"}


def _gateway(port: int, folder: Path) -> list[str | Path]:
    """S3 over the folder ``buckets``."""
    return [
        BUILD / "versitygw",
        "--port",
        f"127.0.0.1:{port}",
        "--region",
        "us-east-1",
        "posix",
        folder / "buckets",
    ]


@pytest.fixture(scope="session")
def sql_on_s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[dict[str, str], Path]]:
    """A SQLite catalog whose tables are in a bucket, for pyiceberg alone; yields the profile, and the
    folder that has the bucket's objects as files.
    """
    if not (BUILD / "versitygw").exists():
        pytest.skip("there is no versitygw (Go builds it)")
    folder, port = tmp_path_factory.mktemp("sql"), free_port()
    bucket = folder / "buckets" / "lakehouse"
    bucket.mkdir(parents=True)
    with serving(_gateway(port, folder), port, folder / "s3.log", _KEYS):
        profile = {
            "TYPE": "sql",
            "URI": f"sqlite:///{folder}/catalog.db",
            "WAREHOUSE": "s3://lakehouse/warehouse",
            "S3__ENDPOINT": f"http://127.0.0.1:{port}",
            "S3__ACCESS_KEY_ID": "icekit",
            "S3__SECRET_ACCESS_KEY": SECRET,
            "S3__REGION": "us-east-1",
        }
        yield profile, bucket


@pytest.fixture(scope="session")
def rest_on_s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A REST catalog whose tables are in a bucket; yields the profile."""
    if not (BUILD / "versitygw").exists():
        pytest.skip("there is no versitygw (Go builds it)")
    folder = tmp_path_factory.mktemp("rest")
    (folder / "buckets" / "lakehouse").mkdir(parents=True)
    s3, rest = free_port(), free_port()
    storage = {
        "s3.endpoint": f"http://127.0.0.1:{s3}",
        "s3.access-key-id": "icekit",
        "s3.secret-access-key": SECRET,
        "s3.path-style-access": "true",
        "client.region": "us-east-1",
    }
    behind = {
        "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        "uri": f"jdbc:sqlite:file:{folder}/catalog.db",
        "jdbc.schema-version": "V1",
        "warehouse": "s3://lakehouse/warehouse",
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        **storage,
    }
    spark_jars = Path(pyspark.__file__).parent / "jars"
    java = [
        shutil.which("java") or "java",
        "-cp",
        f"{BUILD / 'jars'}/*:{spark_jars}/*",
        Path(__file__).with_name("Rest.java"),
        rest,
    ]
    with (
        serving(_gateway(s3, folder), s3, folder / "s3.log", _KEYS),
        serving(
            [*java, *(f"{k}={v}" for k, v in behind.items())],
            rest,
            folder / "rest.log",
            {"AWS_REGION": "us-east-1"},
        ),
    ):
        yield {
            "URI": f"http://127.0.0.1:{rest}",
            "S3__ENDPOINT": storage["s3.endpoint"],
            "S3__ACCESS_KEY_ID": "icekit",
            "S3__SECRET_ACCESS_KEY": SECRET,
            "S3__REGION": "us-east-1",
        }


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A catalog in PostgreSQL, its tables in a folder; yields the profile."""
    found = [shutil.which("initdb"), *map(str, Path("/usr/lib/postgresql").glob("*/bin/initdb"))]
    if not any(found):
        pytest.skip("there is no PostgreSQL")
    programs = Path(next(one for one in found if one)).resolve().parent
    # It does not run as root, and pytest keeps its own folders closed to other users.
    other = (
        ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if os.geteuid() == 0 else []
    )
    with tempfile.TemporaryDirectory(prefix="icekit-postgres-", ignore_cleanup_errors=True) as made:
        folder, port = Path(made), free_port()
        if other:
            os.chown(folder, 65534, 65534)
        (password := folder / "password").write_text(SECRET)
        password.chmod(0o644)
        subprocess.run(
            [*other, programs / "initdb", "-D", folder / "data", "-U", "icekit", "-A", "scram-sha-256", "--pwfile", password],
            check=True, stdout=subprocess.DEVNULL, cwd="/",
        )  # fmt: skip
        start = [
            *other,
            programs / "postgres",
            "-D",
            folder / "data",
            "-p",
            port,
            "-c",
            "listen_addresses=127.0.0.1",
            "-k",
            folder,
        ]
        # At any other signal it waits for its clients.
        with serving(
            start, port, tmp_path_factory.mktemp("postgres-log") / "log", stop=signal.SIGINT
        ):
            yield {
                "URI": f"postgresql+psycopg2://icekit:{SECRET}@127.0.0.1:{port}/postgres",
                "WAREHOUSE": f"file://{tmp_path_factory.mktemp('postgres-warehouse')}",
            }


@contextlib.contextmanager
def connected(
    name: str, profile: Mapping[str, str], factory: pytest.TempPathFactory
) -> Iterator[Lake]:
    """A catalog as the profile of a name, with icekit's own session and a ledger of its own, until
    the block ends.
    """
    with pytest.MonkeyPatch.context() as patch:
        for key, value in profile.items():
            patch.setenv(f"PYICEBERG_CATALOG__{name.upper()}__{key}", value)
        patch.setenv("ICEKIT_LEDGER", str(factory.mktemp("ledger") / "ledger.db"))
        session.stop_own_session()
        lake = icekit.connect(name)
        assert lake.spark is not None
        # A command ends with its own lake, and would take the session with it.
        patch.setattr(session, "stop_own_session", lambda: None)
        yield lake
    lake.close()
    session.stop_own_session()


@pytest.fixture(scope="module", params=["rest_on_s3", "postgres"])
def prod(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Lake]:
    """A catalog of each kind as the profile ``prod``."""
    with connected("prod", request.getfixturevalue(request.param), tmp_path_factory) as lake:
        lake.spark.sql("CREATE NAMESPACE IF NOT EXISTS prod.db")
        yield lake


def as_process(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, as a person runs it."""
    command = [sys.executable, "-m", "icekit", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
