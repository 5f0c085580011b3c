"""Catalogs are found by name, asked without a JVM, and say what is wrong with them."""

import contextlib
import json
import os
import re
import socket
import sqlite3
import sys
import threading
import traceback
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

import icekit
from icekit.common.errors import (
    CatalogUnreachable,
    ExtraMissing,
    IcekitError,
    MetadataUnreadable,
    NotATable,
    PermissionDenied,
    ProfileError,
    SparkUnavailable,
    TableNotFound,
    causes,
    trace,
)
from icekit.common.secrets import remember_secrets, scrub
from icekit.engine import lake, session
from icekit.engine.profiles import check_configuration
from icekit.engine.session import _file_settings
from icekit.engine.tables import ProfileTables
from icekit.health import TableFacts
from tests.child import python
from tests.commands import command
from tests.offline import IDS, lake_in


@pytest.fixture
def own_lake(tmp_path: Path) -> Iterator[SqlCatalog]:
    """An embedded lake of this test, written by pyiceberg alone."""
    with lake_in(tmp_path) as catalog:
        table = catalog.create_table(("db", "events"), IDS)
        table.append(pa.table({"id": [1, 2, 3]}))
        yield catalog


@pytest.fixture
def profile(own_lake: SqlCatalog, tmp_path: Path) -> Iterator[ProfileTables]:
    """That lake as a profile names it."""
    uri = f"sqlite:///{tmp_path}/catalog.db"
    with contextlib.closing(ProfileTables("lake", {"type": "sql", "uri": uri})) as tables:
        yield tables


def observe(table: str, **options: Any) -> TableFacts:
    return icekit.connect().observe(table, collector="local", **options)


def test_the_embedded_lake_is_the_default_and_is_read_without_a_jvm_or_pyiceberg(
    own_lake: SqlCatalog,
) -> None:
    code = (
        "import sys, icekit; f = icekit.connect().observe('db.events'); print(f.data.record_count);"
        "print([m for m in ('pyspark', 'pyiceberg', 'pandas', 'matplotlib') if m in sys.modules])"
    )
    said = python("-c", code, check=True, cwd=Path(__file__).parents[2]).stdout

    assert said.split("\n")[:2] == ["3", "[]"]


def test_the_tables_of_one_namespace_are_listed_and_none_where_there_is_no_such_namespace(
    own_lake: SqlCatalog, profile: ProfileTables
) -> None:
    own_lake.create_namespace("other")
    own_lake.create_table(("other", "events"), IDS)

    for tables in (icekit.connect().tables, profile):
        assert tables.names_in(("other",)) == [("other", "events")]
        assert tables.names_in(("none",)) == []


def test_globs_stand_for_the_tables_that_match(own_lake: SqlCatalog) -> None:
    own_lake.create_table(("db", "empty"), IDS)
    lake = icekit.connect()

    assert lake.match(["db.*"]) == lake.match(["lake.db.**"]) == [("db", "empty"), ("db", "events")]
    assert lake.match(["db.ev*", "db.events"]) == [("db", "events")]
    with pytest.raises(TableNotFound, match="matches 'nothing"):
        lake.match(["nothing.*"])


def test_a_missing_table_is_named_with_near_ones(own_lake: SqlCatalog) -> None:
    with pytest.raises(TableNotFound, match=r"no table db\.evnets; did you mean db\.events\?"):
        observe("lake.db.evnets")


def test_a_view_is_no_table(own_lake: SqlCatalog, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "catalog.db") as database:
        columns = [row[1] for row in database.execute("PRAGMA table_info(iceberg_tables)")]
        if "iceberg_type" not in columns:
            database.execute("ALTER TABLE iceberg_tables ADD COLUMN iceberg_type VARCHAR(5)")
        database.execute("UPDATE iceberg_tables SET iceberg_type = 'VIEW'")

    with pytest.raises(NotATable, match="is a view"):
        observe("db.events")


@pytest.fixture
def nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home and a working directory without a lake and without a configuration."""
    for name in [name for name in os.environ if name.upper().startswith("PYICEBERG_")]:
        monkeypatch.delenv(name)
    home = tmp_path / "home"
    for folder in (home, tmp_path / "work"):
        folder.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("ICEKIT_LAKE", str(tmp_path / "none"))
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path


def test_no_lake_at_all_says_in_four_lines_how_to_configure_a_catalog(nothing: Path) -> None:
    status, printed = command("look")

    assert status == 2
    assert printed.splitlines() == [
        f"icekit: No catalog is configured, and there is no embedded lake at {nothing}/none "
        "(ICEKIT_LAKE).",
        f"PyIceberg reads the first .pyiceberg.yaml of these folders: {nothing}/home, "
        f"{nothing}/work; and variables PYICEBERG_CATALOG__….",
        "To configure one, set PYICEBERG_CATALOG__PROD__URI (and __WAREHOUSE, __TOKEN), then run "
        "`icekit look --catalog prod`.",
        "No table at hand? `icekit demo` unpacks a few that need maintenance.",
    ]
    assert command("look", "db.events") == (status, printed)
    assert not (nothing / "none").exists()


def test_where_catalogs_are_configured_and_none_is_named_they_are_listed(
    nothing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__URI", "http://127.0.0.1:9")
    assert "Add --catalog prod, the only catalog that is configured." in command("look")[1]

    monkeypatch.setenv("PYICEBERG_CATALOG__DEV__URI", "http://127.0.0.1:9")
    assert "Add --catalog with one of dev, prod." in command("look")[1]


def test_an_unconfigured_catalog_is_refused_with_the_others_and_with_where_it_was_looked_for(
    nothing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = f"{nothing}/home, {nothing}/work;"
    alone = command("look", "--catalog", "quay")
    monkeypatch.setenv("PYICEBERG_HOME", "/etc/lakes")
    Path(nothing, "home", ".pyiceberg.yaml").write_text("catalog:\n  prod:\n    uri: http://c\n")
    beside = command("look", "--catalog", "quay")

    assert (alone[0], beside[0]) == (2, 2)
    assert "'quay' is configured; the only catalog is lake, the embedded one. " in alone[1]
    assert f"these folders: {folders}" in alone[1]
    assert "'quay' is configured; the catalogs are lake and prod. " in beside[1]
    assert f"these folders: /etc/lakes (PYICEBERG_HOME), {folders}" in beside[1]


def metadata_file(catalog: SqlCatalog) -> Path:
    return Path(catalog.load_table(("db", "events")).metadata_location.removeprefix("file://"))


def test_a_metadata_file_that_is_gone_is_named(own_lake: SqlCatalog) -> None:
    metadata_file(own_lake).unlink()

    with pytest.raises(MetadataUnreadable, match=r"metadata\.json is missing.*Restore the file"):
        observe("db.events")


@pytest.mark.parametrize("damage", [b"not avro at all", b"Obj\x01", None, b""])
@pytest.mark.parametrize("pattern", ["snap-*.avro", "*-m0.avro"])
def test_a_corrupt_or_missing_manifest_is_named(
    own_lake: SqlCatalog, damage: bytes | None, pattern: str
) -> None:
    (path,) = metadata_file(own_lake).parent.glob(pattern)
    if damage is None:
        path.unlink()
    elif damage:
        path.write_bytes(damage)
    else:
        path.write_bytes(path.read_bytes()[:-30])

    with pytest.raises(MetadataUnreadable, match=path.name):
        observe("db.events")


@pytest.mark.parametrize("location", [None, "", b"\xff"])
def test_a_table_that_the_catalog_lists_without_metadata_is_named(
    profile: ProfileTables, tmp_path: Path, location: object
) -> None:
    with sqlite3.connect(tmp_path / "catalog.db") as catalog:
        catalog.execute("UPDATE iceberg_tables SET metadata_location = ?", [location])

    with pytest.raises(
        TableNotFound,
        match=r"The catalog lists db\.events, but gives no metadata file for it\. Drop the entry",
    ):
        observe("db.events")
    if location is None:
        with pytest.raises(
            TableNotFound, match=r"The catalog lists db\.events, but gives no metadata file"
        ):
            profile.source(("db", "events"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_named(own_lake: SqlCatalog) -> None:
    metadata_file(own_lake).chmod(0)

    with pytest.raises(PermissionDenied, match="not permitted"):
        observe("db.events")


@pytest.mark.usefixtures("own_lake")
def test_a_catalog_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "catalog.db") as catalog:
        catalog.execute("UPDATE iceberg_tables SET table_name = ?", [b"\xff"])
    with pytest.raises(CatalogUnreachable, match="cannot be read: Could not decode"):
        icekit.connect().tables.names()
    (tmp_path / "catalog.db").write_text("no database, however long one looks at it" * 10)
    with pytest.raises(CatalogUnreachable, match="cannot be read: file is not a database"):
        observe("db.events")


def test_an_unknown_catalog_is_named_with_how_to_add_it() -> None:
    with pytest.raises(ProfileError, match="PYICEBERG_CATALOG__PROD__URI"):
        icekit.connect("prod")


def test_a_profile_of_another_sqlite_catalog_is_read_through_pyiceberg(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = f"sqlite:///{tmp_path}/other.db"
    with SqlCatalog("other", uri=uri, warehouse=str(tmp_path)) as catalog:
        catalog.create_namespace("db")
        catalog.create_table(("db", "t"), IDS).append(pa.table({"id": [1]}))
    monkeypatch.setenv("PYICEBERG_CATALOG__OTHER__URI", uri)
    monkeypatch.setenv("PYICEBERG_CATALOG__OTHER__WAREHOUSE", str(tmp_path))
    lake = icekit.connect("other")

    assert lake.tables.names() == [("db", "t")]
    assert lake.observe("db.t", collector="local").data.record_count == 1
    with pytest.raises(TableNotFound, match=r"did you mean db\.t\?"):
        lake.observe("db.tt")
    lake.close()


def test_a_database_that_is_missing_or_of_another_catalog_is_named_and_none_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with SqlCatalog("shop", uri=f"sqlite:///{tmp_path}/shop.db", warehouse=str(tmp_path)) as made:
        made.create_namespace("db")
        made.create_table(("db", "t"), IDS)
    monkeypatch.setenv("PYICEBERG_CATALOG__OTHER__URI", f"sqlite:///{tmp_path}/shop.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__GONE__URI", f"sqlite:///{tmp_path}/gone.db")

    with pytest.raises(ProfileError, match="but tables of shop"):
        icekit.connect("other").observe("db.t")
    with pytest.raises(ProfileError, match=r"no database .*gone\.db"):
        icekit.connect("gone").observe("db.t")
    assert not (tmp_path / "gone.db").exists()


def test_a_missing_driver_is_named_with_the_extra_that_brings_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for driver in ("psycopg", "psycopg2"):
        monkeypatch.setitem(sys.modules, driver, None)
    monkeypatch.setenv("PYICEBERG_CATALOG__POSTGRES__URI", "postgresql://me@localhost/db")

    with pytest.raises(
        ExtraMissing, match=r"'postgres' needs psycopg2?, which is not installed: run `.*postgres\]"
    ):
        icekit.connect("postgres").tables.names()


class _Refusing(BaseHTTPRequestHandler):
    """A catalog that answers every request with 403 and repeats the token it was given."""

    def do_GET(self) -> None:
        body = json.dumps(
            {
                "error": {
                    "message": f"denied for {self.headers.get('Authorization')}",
                    "type": "Forbidden",
                    "code": 403,
                }
            }
        ).encode()
        self.send_response(403)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET  # noqa: N815 - http.server calls it by this name

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def test_a_catalog_that_refuses_is_distinguished_and_the_token_is_not_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with HTTPServer(("127.0.0.1", 0), _Refusing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv(
            "PYICEBERG_CATALOG__REFUSING__URI", f"http://127.0.0.1:{server.server_port}"
        )
        monkeypatch.setenv("PYICEBERG_CATALOG__REFUSING__TOKEN", "very-secret-token")
        with pytest.raises(PermissionDenied, match="refused access") as raised:
            icekit.connect("refusing").observe("db.t")
        server.shutdown()

    assert "very-secret-token" not in f"{trace(raised.value)}"
    assert raised.value.__cause__ is None


def test_a_catalog_that_is_not_there_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYICEBERG_CATALOG__DOWN__URI", "http://127.0.0.1:1")

    with pytest.raises(CatalogUnreachable, match="'down' cannot be used"):
        icekit.connect("down").observe("db.t")


def test_a_catalog_that_accepts_and_never_answers_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("icekit.engine.tables.DEADLINE_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        monkeypatch.setenv(
            "PYICEBERG_CATALOG__SILENT__URI", f"http://127.0.0.1:{listening.getsockname()[1]}"
        )
        # It never answers: that this comes to an end is what is shown.
        with pytest.raises(IcekitError, match="did not answer within"):
            icekit.connect("silent").observe("db.t")


def test_an_address_in_place_of_a_profile_is_not_repeated() -> None:
    with pytest.raises(
        ProfileError, match="by the name of its profile, not by its address"
    ) as refused:
        icekit.connect("postgresql://me:sla/sh@host/db")

    assert "sla/sh" not in str(refused.value)


@pytest.mark.parametrize("secret", ["hunter2", "'hunter2\"hunter2", "<hunter2", "\\hunter2"])
def test_a_secret_that_yaml_cannot_read_is_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, secret: str
) -> None:
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    (tmp_path / ".pyiceberg.yaml").write_text(f"catalog:\n  prod:\n    token: *{secret}\n")
    with pytest.raises(ProfileError, match="line 3: found undefined alias …") as refused:
        icekit.connect("prod")

    assert "hunter2" not in str(refused.value)


CANARY = "canary-0815"
UNREADABLE = [
    f"catalog:\n  sec:\n    uri: http://x\n    token: {CANARY}: x\n",
    f"catalog:\n  sec:\n    token: *{CANARY}\n",
    f"catalog:\n  sec:\n    token: !{CANARY} x\n",
    f"catalog:\n  sec:\n    token: '{CANARY}\n",
    f"catalog:\n  sec:\n    token: {{a: {CANARY}}}\n",
    f"catalog:\n  sec:\n    token: {CANARY}\n    token: {CANARY}\n",
    f"catalog:\n  sec:\n\ttoken: {CANARY}\n",
    f"catalog: {CANARY}\n",
    f"{CANARY}\n",
    f"- {CANARY}\n",
    f"catalog:\n  sec:\n    token: {CANARY}\x07\n",
]


@pytest.mark.parametrize("catalog", ["sec", "lake"])
@pytest.mark.parametrize("text", UNREADABLE)
def test_no_trace_repeats_a_configuration_that_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, catalog: str
) -> None:
    monkeypatch.setattr("icekit.common.secrets._known_secrets", set())
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    monkeypatch.setenv("ICEKIT_LAKE", str(tmp_path))
    (tmp_path / ".pyiceberg.yaml").write_text(text)

    status, printed = command("look", "db.t", "--catalog", catalog, "--debug")
    assert (status, "Traceback" in printed, CANARY in printed) == (2, True, False), printed
    with pytest.raises(ProfileError) as refused:
        check_configuration()
    assert "cannot be read: " in str(refused.value)
    assert [*causes(refused.value)] == [refused.value]
    shown = traceback.format_exception(refused.value)
    assert CANARY not in "".join(shown)


@pytest.mark.parametrize(
    ("character", "what"),
    [("\x07", "the control character U+0007"), ("\ufffe", "U+FFFE"), ("\0", "U+0000")],
)
def test_a_character_that_yaml_does_not_allow_is_named_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, character: str, what: str
) -> None:
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    before = "catalog:\n  sec:\n    token: ä"
    (tmp_path / ".pyiceberg.yaml").write_text(f"{before}{character}\n", encoding="utf-8")
    with pytest.raises(ProfileError) as refused:
        check_configuration()

    message = str(refused.value)
    assert f"character {len(before) + 1} of the file is " in message
    assert f"{what}, which YAML does not allow" in message
    assert "should stand under it" not in message


def test_no_trace_repeats_a_variable_that_contradicts_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "environ", {**os.environ, "PYICEBERG_CATALOG__SEC": CANARY})
    status, printed = command("look", "db.t", "--catalog", "sec", "--debug")
    assert (status, CANARY in printed) == (2, False), printed
    assert "has a value where its properties should be" in printed

    monkeypatch.setitem(os.environ, "PYICEBERG_CATALOG__SEC__TOKEN", CANARY)

    status, printed = command("look", "db.t", "--catalog", "sec", "--debug")
    assert (status, CANARY in printed) == (2, False), printed
    assert "a key has a value where other keys should stand under it" in printed


def test_the_secrets_of_every_profile_are_masked_also_where_they_are_nested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("icekit.common.secrets._known_secrets", set())
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    monkeypatch.setenv("PYICEBERG_CATALOG__THIRD__S3__SECRET_ACCESS_KEY", "third-canary")
    (tmp_path / ".pyiceberg.yaml").write_text(
        "catalog:\n  first:\n    uri: http://x\n  second:\n    auth:\n      type: basic\n"
        "      basic:\n        password: second-canary\n"
    )
    icekit.connect("first")

    assert scrub("third-canary second-canary") == "*** ***"


def test_secrets_of_sparks_own_file_are_masked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("icekit.common.secrets._known_secrets", set())
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    (tmp_path / "spark-defaults.conf").write_text(
        "# spark.password comment\nspark.hadoop.fs.s3a.secret.key   file-canary-1\n"
        "spark.hadoop.fs.azure.account.key.x=file-canary-2==\nspark.a.token:file canary 3\nodd"
    )
    remember_secrets(_file_settings())

    shown = scrub("file-canary-1, file-canary-2== and file canary 3; comment")
    assert shown == "***, *** and ***; comment"


class _Session:
    """A session of some version of Spark, which has a catalog of its own."""

    def __init__(self, version: str) -> None:
        self.version = version
        self.conf = {"spark.sql.catalog.mine": "org.apache.iceberg.spark.SparkCatalog"}


@pytest.mark.parametrize("version", ["4.2.0", "4.3.0-preview1", "3.4.1", "5.0.0"])
def test_a_session_that_iceberg_has_no_runtime_for_is_refused_with_the_newest_that_works(
    version: str,
) -> None:
    session: Any = _Session(version)
    with pytest.raises(
        SparkUnavailable,
        match=rf"^This session has Spark {re.escape(version)}, for which Iceberg has no runtime: "
        r"the newest that works is Spark 4\.1\. .* look, plan and report work without Spark\.$",
    ):
        icekit.connect("mine", spark=session)


def test_a_session_of_other_work_that_iceberg_has_no_runtime_for_is_not_used(
    own_lake: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lake, "_borrowed_session", lambda _: _Session("4.2.0"))

    assert not icekit.connect().spark_is_running
    assert icekit.connect().observe("db.events").data.record_count == 3
    with pytest.raises(SparkUnavailable, match=r"This session has Spark 4\.2\.0"):
        icekit.connect("mine")


@pytest.mark.parametrize("version", ["3.5.2-amzn-1", "4.0.1", "4.1.4"])
def test_a_session_that_iceberg_has_a_runtime_for_is_used(version: str) -> None:
    session: Any = _Session(version)
    assert icekit.connect("mine", spark=session).spark_is_running


def test_an_installed_spark_that_iceberg_has_no_runtime_for_does_not_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session, "_own_spark", None)
    monkeypatch.setattr(session, "spark_version", lambda: "4.2.0")
    with pytest.raises(
        SparkUnavailable,
        match=r"This installation has Spark 4\.2\.0, .* Run `pip install 'pyspark==4\.1\.\*'`\.",
    ):
        _ = icekit.connect().spark
