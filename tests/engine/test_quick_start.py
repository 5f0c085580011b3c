"""The next start of Spark is a quick one: known jars, and the JVM's archive of classes."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from icekit.engine.quick_start import QuickStart, cache_folder
from tests.child import python

SETTINGS = {
    "spark.master": "local[*]",
    "spark.jars.packages": "a:b:1",
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
}


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a cache"))


def start(
    settings: Mapping[str, str] = SETTINGS, java: str = __file__, spark: str = "/env/pyspark"
) -> QuickStart:
    return QuickStart(settings, ["a:b:1"], Path(java), Path(spark))


def archives() -> list[Path]:
    return list(cache_folder().glob("*.jsa"))


class Context:
    """What Spark says of the jars that its packages resolved to."""

    def __init__(self, *jars: Path, **more: str) -> None:
        self.settings = {**SETTINGS, "spark.jars": ",".join(jar.as_uri() for jar in jars), **more}

    def getConf(self) -> Mapping[str, str]:  # noqa: N802
        return self.settings


@pytest.fixture
def jar(tmp_path: Path) -> Path:
    """A jar that an earlier session with :data:`SETTINGS` was started with."""
    path = tmp_path / "the jar.jar"
    path.write_bytes(b"jar")
    start().record_jars(Context(path))
    return path


def test_the_first_start_is_as_always() -> None:
    assert start().settings == SETTINGS
    assert not cache_folder().exists()


def test_the_second_start_has_the_jars_on_its_class_path_and_one_process_writes_the_archive(
    jar: Path,
) -> None:
    first, second = start(), start()

    for each in (first, second):
        assert each.settings["spark.driver.extraClassPath"] == str(jar)
        assert "spark.jars.packages" not in each.settings
    assert (
        "-XX:+UseParallelGC -XX:ArchiveClassesAtExit='"
        in first.settings["spark.driver.extraJavaOptions"]
    )
    assert second.settings["spark.driver.extraJavaOptions"] == "-XX:+UseParallelGC"


def test_an_archive_is_used_once_it_is_whole_and_written_again_if_its_writer_failed(
    jar: Path,
) -> None:
    start()
    (archive,) = archives()

    archive.write_bytes(b"\0\0\0\0" + b"classes")
    assert "Archive" not in start().settings["spark.driver.extraJavaOptions"]
    os.utime(archive, (0, 0))
    assert "-XX:ArchiveClassesAtExit=" in start().settings["spark.driver.extraJavaOptions"]
    assert "Archive" not in start().settings["spark.driver.extraJavaOptions"]
    archive.write_bytes(b"\xf0\x0b\xab\xa8 classes")
    assert "-XX:SharedArchiveFile=" in start().settings["spark.driver.extraJavaOptions"]


@pytest.mark.parametrize(
    "changed",
    [
        {"spark.master": "spark://host:7077"},
        {"spark.master": "local-cluster[2,1,1024]"},
        {"spark.jars": "/own.jar"},
        {"spark.driver.extraClassPath": "/own.jar"},
        {"spark.driver.extraJavaOptions": "-Xshare:off"},
        {"spark.jars.packages": "a:b:2"},
        {"spark.jars.repositories": "https://example.org"},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_a_session_that_differs_starts_as_it_was_asked_to(
    jar: Path, changed: Mapping[str, str]
) -> None:
    assert start({**SETTINGS, **changed}).settings == {**SETTINGS, **changed}


def test_another_java_spark_or_jar_is_a_first_start(jar: Path) -> None:
    assert start(java=str(jar)).settings == SETTINGS
    assert start(spark="/other/pyspark").settings == SETTINGS
    os.utime(jar, (1, 1))
    assert start().settings == SETTINGS


def test_an_archive_that_nobody_uses_is_removed(jar: Path) -> None:
    unused, used = (cache_folder() / f"spark-{name}.jsa" for name in ("unused", "used"))
    for path in (unused, used):
        path.write_bytes(b"classes")
    os.utime(unused, (1, 1))
    os.utime(jar, (1, 1))

    start().record_jars(Context(jar))

    assert archives() == [used]


@pytest.mark.parametrize("name", ["spark.driver.extraClassPath", "spark.jars.packages"])
def test_what_sparks_own_configuration_adds_is_not_lost(jar: Path, name: str) -> None:
    start().jars_file.unlink()

    start().record_jars(Context(jar, **{name: "from spark-defaults.conf"}))

    assert start().settings == SETTINGS


def test_a_process_without_a_home_or_with_an_odd_one_starts_as_always(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", f"{tmp_path}/a{os.pathsep}b")
    assert not start().is_possible
    monkeypatch.delenv("XDG_CACHE_HOME")

    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    assert start().settings == SETTINGS
    assert not start().is_possible


def test_a_cache_that_cannot_be_written_or_read_changes_nothing(tmp_path: Path, jar: Path) -> None:
    (tmp_path / "other.jar").write_bytes(b"")
    start().jars_file.write_text("{")
    assert start().settings == SETTINGS
    (cache_folder().parent / "icekit").rename(tmp_path / "moved")
    cache_folder().write_text("in the way")
    start().record_jars(Context(tmp_path / "other.jar"))
    assert start().settings == SETTINGS


_START = """
import icekit
lake = icekit.connect()
lake.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {lake.name}.quick")
lake.spark.sql(f"CREATE TABLE IF NOT EXISTS {lake.name}.quick.table (id int) USING iceberg")
"""


@pytest.mark.spark
def test_the_third_command_takes_its_classes_from_the_archive(tmp_path: Path) -> None:
    """Spark's, and Iceberg's from a jar that was fetched for it."""
    log = tmp_path / "classes.log"
    options = f"-XX:+UseSerialGC -Xlog:class+load:file={log}"
    environment = {
        **os.environ,
        "ICEKIT_LAKE": str(tmp_path / "lake"),
        "ICEKIT_SPARK_CONF": f"'spark.driver.extraJavaOptions={options}'",
    }
    for _ in range(3):
        # Until the JVM has ended as well: it keeps the pipe open.
        done = python("-c", _START, env=environment)
        assert done.returncode == 0, done.stderr
        assert "[cds" not in done.stdout + done.stderr

    from_archive = [
        line.split()[1]
        for line in log.read_text().splitlines()
        if "shared objects file (top)" in line
    ]
    assert any(name.startswith("org.apache.spark.sql.") for name in from_archive)
    assert any(name.startswith("org.apache.iceberg.spark.") for name in from_archive)
    assert [json.loads(path.read_text()) for path in cache_folder().glob("*.json")]
