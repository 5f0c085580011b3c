"""Declare a setting once, as a dataclass does a field: commands, notebooks, policies and the docs'
tables follow from it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any, ClassVar, Self, dataclass_transform

from icekit.common.errors import ParameterError, require_known
from icekit.common.view import TEXT, Grid

Read = Callable[[Any], Any]


@dataclass
class Declared:
    """A setting that a class declares."""

    default: Any
    metadata: Mapping[str, Any]
    name: str = ""

    def __set_name__(self, _: type, name: str) -> None:
        self.name = name


def setting(
    default: Any,
    help: str,
    metavar: str | None = None,
    *,
    read: Read | None = None,
    **metadata: Any,
) -> Any:
    """A setting with its default, what it does, and what reads a value, as text or as a plain value
    (by default by the default's type).

    ``how`` says what it is to a command: ``rare`` (only in ``--help-all``), ``nargs`` (an argument
    without dashes), ``repeats`` (the option is the singular, and may be given again), ``short`` (a
    letter for it); or ``only``: it is only a ``command``'s, or only a ``notebook``'s.
    """
    return Declared(default, {"help": help, "metavar": metavar, "read": read, **metadata})


def text(value: Any) -> str:
    """A string, or in its place a number or a date, as YAML reads them."""
    if isinstance(value, (bool, list, tuple, Mapping)):
        raise TypeError
    return str(value)


def flag(value: Any) -> bool:
    """A switch: true or false, also as text."""
    return {"true": True, "false": False}[str(value).lower()]


def number(value: Any) -> float:
    """A finite number, also as text."""
    if isinstance(value, bool) or not math.isfinite(read := float(value)):
        raise ValueError
    return read


def whole(value: Any) -> int:
    """A whole number, also as text."""
    if (read := number(value)) != int(read):
        raise ValueError
    return int(read)


def names(value: Any) -> tuple[str, ...]:
    """Names separated by commas, or a list of them."""
    parts = value.split(",") if isinstance(value, str) else value
    return tuple(part for each in listed(parts) if (part := each.strip()))


def listed(value: Any) -> tuple[str, ...]:
    """A list of strings."""
    if not isinstance(value, (list, tuple)):
        raise TypeError
    return tuple(map(text, value))


def changes(value: Any) -> dict[str, float]:
    """Numbers by name, or a list of ``NAME=VALUE``."""
    pairs = (
        value.items()
        if isinstance(value, Mapping)
        else (pair.split("=", 1) for pair in listed(value))
    )
    return {name.strip(): number(changed) for name, changed in pairs}


_READERS: Mapping[type, Read] = {
    str: text,
    bool: flag,
    int: whole,
    float: number,
    tuple: names,
    dict: changes,
    type(None): text,
}
_KINDS: Mapping[Read | None, str] = {
    text: "a string",
    flag: "true or false",
    number: "a number",
    whole: "a whole number",
    names: "names separated by commas, or a list (with papermill: -y '{name}: [a, b]')",
    listed: "a list of strings (with papermill: -y '{name}: [\"a = 1\"]')",
    changes: "NAME=VALUE with a number, or a mapping (with papermill: -y '{name}: {{snapshots: "
    "50}}')",
}


def one_of(noun: str, *choices: str) -> Read:
    """The reader of a text that is one of some."""

    def read(value: Any) -> Any:
        require_known(value, choices, noun)
        return value

    return read


def read_as(name: str, reader: Read, value: Any) -> Any:
    """Read a value by its reader; raises :class:`~icekit.common.errors.ParameterError` with its
    name.
    """
    try:
        return reader(value)
    except (TypeError, ValueError, KeyError, OverflowError):
        kind = _KINDS.get(reader, "another value").format(name=name)
        raise ParameterError(f"{name} must be {kind}, not {value!r}.") from None


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(setting,))
class Settings:
    """The settings of a command, a notebook or a section of a policy; shown, they are a table with
    what each does.

    Each is given by its name, or has its default.
    """

    # No dataclasses: making these many takes longer than anything else of a command's start.
    #: What is declared, by name.
    declared: ClassVar[dict[str, Declared]] = {}

    def __init_subclass__(cls) -> None:
        base_values = (value for base in reversed(cls.__mro__) for value in vars(base).values())
        cls.declared = {value.name: value for value in base_values if isinstance(value, Declared)}

    def __init__(self, **given: Any) -> None:
        for name in given:
            require_known(name, self.declared, "parameter")
        for name, declared in self.declared.items():
            value = given.get(name)
            reader = declared.metadata["read"] or _READERS[type(declared.default)]
            is_given = value is not None
            vars(self)[name] = read_as(name, reader, value) if is_given else declared.default

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """Read values by name; None is not given. Raises
        :class:`~icekit.common.errors.ParameterError`, also for an unknown name.
        """
        return cls(**given)

    def only(self, *names: str) -> dict[str, Any]:
        """Some of them, by name, to pass on."""
        return {name: getattr(self, name) for name in names}

    def replaced(self, **values: Any) -> Self:
        """The same settings with other values for some, which are not read."""
        other = copy(self)
        vars(other).update(values)
        return other

    def changed(self, kind: type[Settings] | None = None) -> dict[str, Any]:
        """Those that differ from their defaults; with ``kind`` only those that it declares."""
        declared = (kind or type(self)).declared.values()
        return {
            each.name: value
            for each in declared
            if (value := getattr(self, each.name)) != each.default
        }

    def words(self, kind: type[Settings]) -> list[str]:
        """Those of a kind that differ from their defaults, as words of a command line."""
        words: list[str] = []
        for name, value in self.changed(kind).items():
            option = f"--{name.replace('_', '-')}"
            if value is True:
                words.append(option)
            elif isinstance(value, Mapping):
                for key, number in value.items():
                    words += [option.removesuffix("s"), f"{key}={number:g}"]
            else:
                words += [option, ",".join(value) if isinstance(value, tuple) else str(value)]
        return words

    def grid(self) -> Grid:
        """Each setting with its value, its default and what it does."""
        columns = {"setting": TEXT, "value": TEXT, "default": TEXT, "help": TEXT("what it does")}
        rows = [
            (name, repr(getattr(self, name)), repr(f.default), f.metadata["help"])
            for name, f in self.declared.items()
        ]
        return Grid(
            "Settings; set those without a line of their own in more, for example more = {name: "
            "value}:",
            columns,
            rows,
        )

    def __repr__(self) -> str:
        return str(self.grid())

    def _repr_html_(self) -> str:
        return self.grid()._repr_html_()
