"""The gate's Spark tests (the mark ``core``) are what their marks say."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CORE_FILES = sorted(
    str(path.relative_to(ROOT))
    for folder in ("tests", "rigs")
    for path in (ROOT / folder).rglob("test_*.py")
    if re.search(r"pytest\.mark\.core\b", path.read_text()) and path != Path(__file__)
)


@pytest.mark.parametrize("path", CORE_FILES)
def test_only_spark_tests_are_core(path: str) -> None:
    assert "pytest.mark.spark" in (ROOT / path).read_text()


def test_each_variant_that_a_mark_names_is_there(request: pytest.FixtureRequest) -> None:
    """Of the files that this run has collected: of a test alone that is this one."""
    conftest = next(
        plugin
        for plugin in request.config.pluginmanager.get_plugins()
        if hasattr(plugin, "CORE_VARIANTS")
    )
    missing = {
        function: names - conftest.CORE_VARIANTS[function] - {"*"}
        for function, names in conftest.NAMED_VARIANTS.items()
    }

    assert {function: names for function, names in missing.items() if names} == {}
