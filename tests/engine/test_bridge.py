"""What the JVM holds is read without an exception of the JVM, which PySpark is slow to understand."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.errors.exceptions import captured

from icekit.api import Lake
from icekit.engine.bridge import elements

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("many", [0, 1, 3])
def test_collections_and_arrays_are_read_to_their_end(lake: Lake, monkeypatch: pytest.MonkeyPatch, many: int) -> None:
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
