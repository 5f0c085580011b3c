"""The public packages say what is public, document it, and can each be imported first."""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

MAKEFILE = (Path(__file__).parents[1] / "Makefile").read_text(encoding="utf-8")
PUBLIC = re.search(r"^PUBLIC := (.*?[^\\])$", MAKEFILE, re.M | re.S)[1].replace("\\\n", " ").split()  # type: ignore[index]


@pytest.mark.parametrize("name", PUBLIC)
def test_what_is_public_has_a_docstring(name: str) -> None:
    module = importlib.import_module(name)
    names = getattr(module, "__all__", [n for n, o in vars(module).items() if getattr(o, "__module__", "") == name and n[0] != "_"])

    assert module.__doc__
    assert names, "nothing of it is public"
    for public in names:
        shown = getattr(module, public)
        if inspect.isclass(shown) or inspect.isroutine(shown):
            assert inspect.getdoc(shown), f"{name}.{public} says nothing"


# Forked before anything of icekit is imported, so that none finds what another has loaded.
_EACH_FIRST = """
import os, sys
for name in sys.argv[1:]:
    child = os.fork()
    if not child:
        __import__(name)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        sys.exit(f"{name} cannot be imported first")
"""


def test_each_can_be_imported_first() -> None:
    ran = subprocess.run([sys.executable, "-c", _EACH_FIRST, *PUBLIC], capture_output=True, text=True, check=False)

    assert ran.returncode == 0, ran.stderr
