"""The Java classes of the package compile in the session, and are those that the modules ask
for.
"""

import re
from pathlib import Path
from typing import Any

import pytest

import icekit
from icekit.api import Lake
from icekit.engine import bridge

PACKAGE = Path(icekit.__file__).parent
SOURCES = {
    path.stem: path.read_text() for path in sorted((PACKAGE / "engine" / "java").glob("*.java"))
}


def load(lake: Lake, name: str) -> Any:
    jvm: Any = lake.spark._jvm
    actions = jvm.org.apache.iceberg.spark.actions.SparkActions.get(lake.spark._jsparkSession)
    return bridge._class_loader(jvm, actions.getClass().getClassLoader()).loadClass(
        f"icekit.{name}"
    )


def test_every_class_is_asked_for_and_there() -> None:
    asked = {
        name
        for path in PACKAGE.rglob("*.py")
        for name in re.findall(r'(?<!\w)java_object\([^"]*?"(\w+)"', path.read_text())
    }
    assert asked == {name for name, source in SOURCES.items() if "\npublic class " in source}


@pytest.mark.spark
@pytest.mark.core("*")
@pytest.mark.parametrize("name", SOURCES)
def test_a_class_compiles(lake: Lake, name: str) -> None:
    assert load(lake, name).getName() == f"icekit.{name}"
