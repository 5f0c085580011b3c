"""What the JVM holds is read without an exception of the JVM, which PySpark is slow to
understand.
"""

from contextlib import AbstractContextManager
from threading import Event, Thread
from typing import Any

import pytest
from pyspark.errors.exceptions import captured

from icekit.api import Lake
from icekit.common.errors import EngineFailed
from icekit.engine import bridge
from icekit.engine.bridge import (
    _temporary_value,
    activate_session,
    elements,
    old_iceberg_message,
    temporary_settings,
)
from icekit.maintain.action import Action
from icekit.maintain.prediction import Prediction
from icekit.maintain.run.preconditions import require_api

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("many", [0, 1, 3])
def test_collections_and_arrays_are_read_to_their_end(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, many: int
) -> None:
    def refused(error: Any) -> Any:
        raise AssertionError(f"an exception of the JVM: {error}")

    jvm: Any = lake.spark._jvm
    gateway: Any = lake.spark._sc._gateway
    listed, array = jvm.java.util.ArrayList(), gateway.new_array(jvm.java.lang.String, many)
    for place in range(many):
        listed.add(str(place))
        array[place] = str(place)
    scala = jvm.scala.jdk.javaapi.CollectionConverters.asScala(listed).toSeq()
    monkeypatch.setattr(captured, "convert_exception", refused)

    found = [list(elements(each)) for each in (listed, jvm.java.util.HashSet(listed), array, scala)]

    assert found == [[str(place) for place in range(many)]] * 4


def inside(lake: Lake, block: AbstractContextManager[None]) -> tuple[Event, Thread]:
    """A thread in a block, and the event that lets it leave."""
    entered, leave = Event(), Event()

    def work() -> None:
        activate_session(lake.spark)
        with block:
            entered.set()
            leave.wait(60)

    thread = Thread(target=work)
    thread.start()
    assert entered.wait(60)
    return leave, thread


@pytest.mark.parametrize("set_before", ["7", None], ids=["set before", "not set"])
@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["first leaves first", "first leaves last"])
def test_overlapping_threads_leave_a_setting_as_it_was(
    lake: Lake, set_before: str | None, order: tuple[int, int]
) -> None:
    """The second found the first one's value, and put it back for good; meanwhile it lost its
    own.
    """
    conf, key = lake.spark.conf, "spark.sql.icekit.test"
    with temporary_settings(lake.spark, {key: set_before} if set_before else {}):
        threads = [inside(lake, temporary_settings(lake.spark, {key: "false"})) for _ in range(2)]
        for place in order:
            assert conf.get(key, None) == "false"
            leave, thread = threads[place]
            leave.set()
            thread.join(60)

        assert conf.get(key, None) == set_before
    assert conf.get(key, None) is None


def test_a_value_that_could_not_be_set_leaves_no_old_one_for_the_next_block(lake: Lake) -> None:
    """A catalog was down; then its old value was put back over a newer one."""
    held = ["old"]

    def write(value: str) -> None:
        if value == "down":
            raise ConnectionError
        held[:] = [value]

    def changed_to(value: str) -> AbstractContextManager[None]:
        return _temporary_value(lake.spark, "icekit.test", value, lambda: held[0], write)

    with pytest.raises(ConnectionError), changed_to("down"):
        pass
    write("newer")
    with changed_to("ours"):
        assert held == ["ours"]

    assert held == ["newer"]


def test_an_iceberg_that_is_too_old_is_refused_before_anything_is_written(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert old_iceberg_message(lake.spark) is None
    monkeypatch.setattr(bridge, "iceberg_version", lambda *_: "1.10.3")
    actions = {
        name: Action("a1", name, lake.name, ("db", "t"), "", Prediction())
        for name in ("rewrite_data_files", "rewrite_manifests")
    }

    require_api(lake.spark, [actions["rewrite_manifests"]])
    with pytest.raises(EngineFailed, match=r"Iceberg 1\.11 or newer; this session has 1\.10\.3\."):
        require_api(lake.spark, actions.values())
