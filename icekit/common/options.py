"""Declare a setting once, as a dataclass does a field: commands, notebooks, policies and the docs'
tables follow from it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self, dataclass_transform

from icekit.common.errors import ParameterError, require_known
from icekit.common.view import TEXT, Grid

Reader = Callable[[Any], Any]
Audience = Literal["command", "notebook"]


@dataclass
class SettingDeclaration:
    """A setting that a class declares."""

    default: Any
    help_text: str
    metavar: str | None
    reader: Reader | None
    nargs: str
    is_rare: bool
    is_repeatable: bool
    short_letter: str
    only_for: Audience | None
    name: str = ""

    def __set_name__(self, _: type, name: str) -> None:
        self.name = name


def setting(
    default: Any,
    help: str,
    metavar: str | None = None,
    *,
    read: Reader | None = None,
    nargs: Literal["", "1", "?", "*", "+"] = "",
    rare: bool = False,
    repeats: bool = False,
    short: str = "",
    only: Audience | None = None,
) -> Any:
    """A setting with its default, what it does, and what reads a value, as text or as a plain value
    (by default by the default's type).

    To a command it is an option; with ``nargs`` an argument without dashes, given once, at most
    once, any number of times or at least once. ``rare``: only in ``--help-all``. ``repeats``: the
    option is the singular, and may be given again. ``short`` is a letter for it. ``only``: it is
    only a command's, or only a notebook's.
    """
    return SettingDeclaration(
        default=default,
        help_text=help,
        metavar=metavar,
        reader=read,
        nargs=nargs,
        is_rare=rare,
        is_repeatable=repeats,
        short_letter=short,
        only_for=only,
    )


def read_text(value: Any) -> str:
    """A string, or in its place a number or a date, as YAML reads them."""
    if isinstance(value, (bool, list, tuple, Mapping)):
        raise TypeError
    return str(value)


def read_flag(value: Any) -> bool:
    """A switch: true or false, also as text."""
    return {"true": True, "false": False}[str(value).lower()]


def read_number(value: Any) -> float:
    """A finite number, also as text."""
    if isinstance(value, bool) or not math.isfinite(finite_number := float(value)):
        raise ValueError
    return finite_number


def read_whole_number(value: Any) -> int:
    """A whole number, also as text."""
    if (finite_number := read_number(value)) != int(finite_number):
        raise ValueError
    return int(finite_number)


def read_names(value: Any) -> tuple[str, ...]:
    """Names separated by commas, or a list of them."""
    name_texts = value.split(",") if isinstance(value, str) else value
    return tuple(
        stripped_name
        for name_text in read_texts(name_texts)
        if (stripped_name := name_text.strip())
    )


def read_texts(value: Any) -> tuple[str, ...]:
    """A list of strings."""
    if not isinstance(value, (list, tuple)):
        raise TypeError
    return tuple(map(read_text, value))


def read_numbers_by_name(value: Any) -> dict[str, float]:
    """Numbers by name, or a list of ``NAME=VALUE``."""
    name_value_pairs = (
        value.items()
        if isinstance(value, Mapping)
        else (pair_text.split("=", 1) for pair_text in read_texts(value))
    )
    return {name.strip(): read_number(number_text) for name, number_text in name_value_pairs}


_READERS: Mapping[type, Reader] = {
    str: read_text,
    bool: read_flag,
    int: read_whole_number,
    float: read_number,
    tuple: read_names,
    dict: read_numbers_by_name,
    type(None): read_text,
}
_KINDS: Mapping[Reader | None, str] = {
    read_text: "a string",
    read_flag: "true or false",
    read_number: "a number",
    read_whole_number: "a whole number",
    read_names: "names separated by commas, or a list (with papermill: -y '{name}: [a, b]')",
    read_texts: "a list of strings (with papermill: -y '{name}: [\"a = 1\"]')",
    read_numbers_by_name: "NAME=VALUE with a number, or a mapping (with papermill: -y '{name}: {{snapshots: "
    "50}}')",
}


def one_of(noun: str, *choices: str) -> Reader:
    """The reader of a text that is one of some."""

    def read(value: Any) -> Any:
        require_known(value, choices, noun)
        return value

    return read


def read_as(name: str, reader: Reader, value: Any) -> Any:
    """Read a value by its reader; raises :class:`~icekit.common.errors.ParameterError` with its
    name.
    """
    try:
        return reader(value)
    except (TypeError, ValueError, KeyError, OverflowError):
        expected_text = _KINDS.get(reader, "another value").format(name=name)
        raise ParameterError(f"{name} must be {expected_text}, not {value!r}.") from None


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(setting,))
class Settings:
    """The settings of a command, a notebook or a section of a policy; shown, they are a table with
    what each does.

    Each is given by its name, or has its default.
    """

    # No dataclasses: making these many takes longer than anything else of a command's start.
    #: What is declared, by name.
    declarations: ClassVar[dict[str, SettingDeclaration]] = {}

    def __init_subclass__(cls) -> None:
        class_attributes = (
            attribute for base in reversed(cls.__mro__) for attribute in vars(base).values()
        )
        cls.declarations = {
            attribute.name: attribute
            for attribute in class_attributes
            if isinstance(attribute, SettingDeclaration)
        }

    def __init__(self, **values: Any) -> None:
        for name in values:
            require_known(name, self.declarations, "parameter")
        for name, declaration in self.declarations.items():
            value = values.get(name)
            reader = declaration.reader or _READERS[type(declaration.default)]
            is_given = value is not None
            vars(self)[name] = read_as(name, reader, value) if is_given else declaration.default

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """Read values by name; None is not given. Raises
        :class:`~icekit.common.errors.ParameterError`, also for an unknown name.
        """
        return cls(**values)

    def only(self, *names: str) -> dict[str, Any]:
        """Some of them, by name, to pass on."""
        return {name: getattr(self, name) for name in names}

    def with_values(self, **values: Any) -> Self:
        """The same settings with other values for some, which are not read."""
        changed_copy = copy(self)
        vars(changed_copy).update(values)
        return changed_copy

    def changed(self, settings_class: type[Settings] | None = None) -> dict[str, Any]:
        """Those that differ from their defaults; with ``kind`` only those that it declares."""
        declarations = (settings_class or type(self)).declarations.values()
        return {
            declaration.name: value
            for declaration in declarations
            if (value := getattr(self, declaration.name)) != declaration.default
        }

    def option_words(self, settings_class: type[Settings]) -> list[str]:
        """Those of a kind that differ from their defaults, as words of a command line."""
        words: list[str] = []
        for name, value in self.changed(settings_class).items():
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
            (name, repr(getattr(self, name)), repr(declaration.default), declaration.help_text)
            for name, declaration in self.declarations.items()
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
