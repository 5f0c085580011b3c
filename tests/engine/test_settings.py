"""What a person sets for Spark is read before it starts."""

from collections.abc import Mapping

import pytest

from icekit.common.errors import SparkUnavailable
from icekit.engine import session
from icekit.engine.session import own_settings
from icekit.engine.spark_conf import SparkCatalogConf


def test_settings_are_read_as_a_shell_reads_them() -> None:
    assert {"a": "1", "b": "-X -Y=2", "c": ""}.items() <= own_settings("a=1 'b=-X -Y=2' c=").items()


def test_what_is_set_wins_over_what_icekit_sets() -> None:
    assert own_settings("")["spark.jars.packages"] == ""
    assert own_settings("", ["a:b:1", "a:c:1"])["spark.jars.packages"] == "a:b:1,a:c:1"
    assert own_settings("spark.jars.packages=mine spark.log.level=WARN", ["a:b:1"]).items() >= {
        ("spark.jars.packages", "mine"),
        ("spark.log.level", "WARN"),
    }


@pytest.mark.parametrize("master", ["local[*]", "local", "local-cluster[2,1,1024]"])
def test_a_local_session_listens_on_this_machine_alone(master: str) -> None:
    assert own_settings(f"spark.master={master}")["spark.driver.host"] == "127.0.0.1"
    assert (
        own_settings(f"spark.master={master} spark.driver.host=box")["spark.driver.host"] == "box"
    )


@pytest.mark.parametrize("master", ["spark://head:7077", "yarn", "k8s://https://head:6443"])
def test_executors_elsewhere_can_reach_the_driver(master: str) -> None:
    assert not own_settings(f"spark.master={master}").keys() & {
        "spark.driver.host",
        "spark.driver.bindAddress",
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("'a=1", "No closing quotation"),
        ("spark.master", "word 1 has no = after a key"),
        ("a=1 hunter2", "word 2 has no"),
        ("=1", "word 1 has no"),
    ],
)
def test_what_is_no_setting_is_named(text: str, said: str) -> None:
    with pytest.raises(SparkUnavailable, match=f"ICEKIT_SPARK_CONF must be key=value.*{said}"):
        own_settings(text)


def test_only_a_session_of_one_command_on_little_data_or_of_the_kernel_is_compiled_lightly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Mapping[str, str]] = []
    monkeypatch.setattr(session, "_own_session", lambda _, more: asked.append(more))
    conf = SparkCatalogConf({}, ())

    session.own_session(conf)
    session.own_session(conf, small_work=True)
    session.own_session(conf, light_work=True)
    with session.keep_session():
        session.own_session(conf, small_work=True)

    options = "spark.driver.extraJavaOptions"
    assert ["TieredStopAtLevel=1" in more.get(options, "") for more in asked] == [
        False,
        True,
        True,
        False,
    ]
    assert own_settings(f"{options}=-Xss8m", extra_settings=asked[1])[options] == "-Xss8m"


def test_a_failed_start_is_explained_by_its_cause_and_no_line_of_a_trace() -> None:
    cause = "Caused by: java.nio.file.FileSystemException: /disk/a: No space left on device"
    frame = "\tat java.base/sun.nio.fs.UnixException.rethrowAsIOException(UnixException.java:106)"

    assert session._start_failure(f"Exception in thread main\n{cause}\n{frame}\n") == cause
