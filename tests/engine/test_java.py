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
    return bridge._loader(jvm, actions.getClass().getClassLoader()).loadClass(f"icekit.{name}")


def test_every_class_is_asked_for_and_there() -> None:
    asked = {
        name
        for path in PACKAGE.rglob("*.py")
        for name in re.findall(r'(?<!\w)compiled\([^"]*?"(\w+)"', path.read_text())
    }
    assert asked == {name for name, source in SOURCES.items() if "\npublic class " in source}


@pytest.mark.spark
@pytest.mark.parametrize("name", SOURCES)
def test_a_class_compiles(lake: Lake, name: str) -> None:
    assert load(lake, name).getName() == f"icekit.{name}"


@pytest.mark.spark
def test_a_class_that_does_not_compile_is_an_error_that_says_where(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "java").mkdir()
    (tmp_path / "java" / "Wrong.java").write_text(
        "package icekit;\n\npublic class Wrong {\n  int of() { return unknown; }\n}\n"
    )
    monkeypatch.setattr(bridge, "__file__", str(tmp_path / "bridge.py"))

    with pytest.raises(Exception, match=r"Wrong\.java.*Line 4"):
        load(lake, "Wrong")
