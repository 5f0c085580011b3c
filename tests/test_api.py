"""The public packages say what is public, and document it."""

import importlib
import inspect
import re
from pathlib import Path

import pytest

MAKEFILE = (Path(__file__).parents[1] / "Makefile").read_text(encoding="utf-8")
PUBLIC = re.search(r"^PUBLIC := (.*?[^\\])$", MAKEFILE, re.M | re.S)[1].replace("\\\n", " ").split()  # type: ignore[index]


@pytest.mark.parametrize("name", PUBLIC)
def test_what_is_public_has_a_docstring(name: str) -> None:
    module = importlib.import_module(name)
    names = getattr(
        module,
        "__all__",
        [
            n
            for n, o in vars(module).items()
            if getattr(o, "__module__", "") == name and n[0] != "_"
        ],
    )

    assert module.__doc__
    assert names, "nothing of it is public"
    for public in names:
        shown = getattr(module, public)
        if inspect.isclass(shown) or inspect.isroutine(shown):
            assert inspect.getdoc(shown), f"{name}.{public} says nothing"
