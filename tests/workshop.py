"""The lab's tables, each unpacked when the first test of a process asks for it."""

import contextlib
import fcntl
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from icekit.learn.lab import NAMESPACE, lab_tables

ROOT = Path(__file__).parents[1]
#: Not the person's own lake: that of the notebooks' tests.
LAB = ROOT / "build" / "lake"


def unpacking(text: str) -> str:
    """Code that unpacks, in the process that runs it, the lab tables that a text names."""
    every = re.findall(rf"{NAMESPACE}\.(\w+)", text)
    names = sorted({name for name in every if name in lab_tables()})
    return (
        "from icekit import connect\nfrom icekit.learn.lab import unpack_lab\n"
        f"unpack_lab(connect(), {names}, reset=True, progress=lambda _: None)"
    )


@contextlib.contextmanager
def one_at_a_time(what: str) -> Iterator[None]:
    """Let one process after the other do something."""
    LAB.parent.mkdir(parents=True, exist_ok=True)
    with (LAB.parent / f"{what}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def each_lab_table(names: Iterable[str] = lab_tables()) -> pytest.MarkDecorator:
    """A test of each of these tables, by its ``name``."""
    tables = [pytest.param(name, marks=pytest.mark.lab(name)) for name in names]
    return pytest.mark.parametrize("name", tables)
