"""Quote identifiers and literals: the only module in which names become SQL."""

import datetime as dt
import glob
import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

from icekit.common.errors import InvalidName

Identifier = tuple[str, ...]
#: Keys that Spark's SET accepts without quoting (SparkSqlAstBuilder).
_PLAIN_KEY = re.compile(r"[a-zA-Z_\d.:]+")
# What no catalog can hold: a zero, and the halves of characters that an argument in another
# encoding is read as.
_NO_LETTER = re.compile("[\0\ud800-\udfff]")
#: What an argument of a procedure may be; a tuple is an array of strings.
Argument = str | int | bool | dt.datetime | tuple[str | int, ...]


def parse_identifier(text: str) -> Identifier:
    """Split ``db.table`` at dots that are not inside backticks.

    A part in backticks may contain anything; two backticks stand for one, as in Spark SQL.
    Outside backticks every character but dot and backtick is kept, so that
    names with spaces, quotes or Unicode work unquoted, and SQL put into a name is only an
    odd name. Raises :class:`~icekit.common.errors.InvalidName` for an empty part, an open
    backtick or a missing namespace.
    """
    parts = tuple(part for part, _ in _levels(text))
    if len(parts) < 2:
        raise InvalidName(f"{text!r} has no namespace. Write it as namespace.table.")
    return parts


# A part in backticks, where two stand for one, or what is before the next dot or backtick.
_PART = re.compile(r"`((?:``|[^`])*)`|([^.`]+)")


def _levels(text: str) -> list[tuple[str, bool]]:
    """The parts of a name, and whether each is in backticks."""
    levels: list[tuple[str, bool]] = []
    position = 0
    while level_match := _PART.match(text, position):
        level = level_match[2] or level_match[1].replace("``", "`")
        if not level or _NO_LETTER.search(level):
            break
        levels.append((level, level_match[2] is None))
        position = level_match.end() + 1
        if level_match.end() == len(text):
            return levels
        if text[level_match.end()] != ".":
            break
    raise InvalidName(
        f"{text!r} is not a table name. Write it as namespace.table, with odd parts in backticks "
        "(as in db.`odd name`), and a backtick inside a name twice."
    )


#: The level of a pattern that stands for one or more levels of a name; alone, every table.
EVERY_TABLE = "**"


@cache
def pattern_levels(pattern: str) -> Identifier:
    """The levels of a pattern of table names, each a glob; a level in backticks stands for itself.

    A ``*``, ``?`` or ``[…]`` stays within one level: ``db.*`` is every table of the namespace
    ``db``, and none of a namespace inside it. ``**`` is one or more levels: ``db.**`` also takes
    the tables of the namespaces inside ``db``, and ``**`` every table. Raises
    :class:`~icekit.common.errors.InvalidName` for what :func:`parse_identifier` rejects.
    """
    levels = tuple(
        glob.escape(level) if is_quoted else level for level, is_quoted in _levels(pattern)
    )
    if len(levels) < 2 and levels != (EVERY_TABLE,):
        raise InvalidName(
            f"{pattern!r} has no namespace. Write it as namespace.table, such as db.*, or ** for "
            "every table."
        )
    return levels


def is_pattern(text: str) -> bool:
    """Whether a text is a pattern and not one name: a level outside backticks has ``*``, ``?`` or
    ``[``.
    """
    return any(not is_quoted and glob.has_magic(level) for level, is_quoted in _levels(text))


_OWN = frozenset({"icekit", "icekit_scratch"})


def matches(pattern: str, name: Identifier, catalog: str = "") -> bool:
    """Whether a pattern (:func:`pattern_levels`) takes a table; the pattern may begin with the name
    of ``catalog``.

    Only a pattern that begins with ``icekit`` takes tables of the namespaces that icekit itself
    creates.
    """
    wanted_levels = pattern_levels(pattern)
    if len(wanted_levels) > 2 and catalog and wanted_levels[0] == glob.escape(catalog):
        wanted_levels = wanted_levels[1:]
    return (name[0] not in _OWN or wanted_levels[0].startswith("icekit")) and _levels_match(
        wanted_levels, name
    )


def _levels_match(levels: Identifier, name: Identifier) -> bool:
    if not levels or not name:
        return not levels and not name
    if levels[0] == EVERY_TABLE:
        return any(_levels_match(levels[1:], name[n:]) for n in range(1, len(name) + 1))
    return fnmatchcase(name[0], levels[0]) and _levels_match(levels[1:], name[1:])


def identifier(*parts: str) -> str:
    """Quote each part in backticks and join them with dots, for Spark SQL."""
    return ".".join("`" + part.replace("`", "``") + "`" for part in parts)


def free_name(name: str, other_names: Iterable[str]) -> str:
    """A name, lengthened until no other name equals it, whatever the case."""
    lower_names = {other_name.lower() for other_name in other_names}
    while name.lower() in lower_names:
        name += "_"
    return name


def free_prefix(prefix: str, other_names: Iterable[str]) -> str:
    """A prefix, lengthened until no other name begins with it, whatever the case: for columns that
    icekit adds to those of a table.
    """
    lower_names = [other_name.lower() for other_name in other_names]
    while any(other_name.startswith(prefix.lower()) for other_name in lower_names):
        prefix += "_"
    return prefix


def display_name(parts: Sequence[str]) -> str:
    """Write an identifier as a person would, with backticks only where it needs them."""
    return ".".join(part if _is_plain(part) else identifier(part) for part in parts)


def _is_plain(part: str) -> bool:
    # What Spark reads without backticks, also inside an argument of CALL.
    return re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", part) is not None


_ESCAPES = str.maketrans({"\\": r"\\", "'": r"\'", "\n": r"\n", "\r": r"\r"})


def literal(value: str | int | float | bool | dt.datetime | None) -> str:
    """Write a Python value as a Spark SQL literal; strings keep every character.

    A moment is written in UTC, whatever the session's time zone; one without a zone raises
    ValueError.
    """
    if isinstance(value, dt.datetime):
        if value.tzinfo is None:
            raise ValueError(f"{value} has no time zone")
        return f"TIMESTAMP '{value.astimezone(dt.UTC).isoformat(' ', 'microseconds')}'"
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # Spark replaces ${name} with the value of a setting before it parses.
        escaped_text = value.translate(_ESCAPES).replace("${", "\\u0024{")
        return f"'{escaped_text}'"
    return repr(value)


def call_sql(
    catalog: str, procedure: str, *, options: Mapping[str, str] | None = None, **arguments: Argument
) -> str:
    """Write ``CALL catalog.system.procedure(name => value, …)`` with every value quoted.

    One of ``rewrite_data_files`` is written so that rows that a writer deletes meanwhile cannot
    come back, unless its options say otherwise: with an old sequence number for its output,
    Iceberg's default, the commit can drop equality deletes that were committed meanwhile and apply
    to that (:mod:`icekit.engine.bridge`). With a new one they are a conflict: the call fails, and
    has to be repeated.
    """
    procedure_options = dict(options or {})
    if procedure == "rewrite_data_files":
        procedure_options.setdefault("use-starting-sequence-number", "false")
    arguments_sql = []
    for name, value in arguments.items():
        if isinstance(value, tuple):
            arguments_sql.append(f"{name} => array({', '.join(map(literal, value))})")
        else:
            arguments_sql.append(f"{name} => {literal(value)}")
    if procedure_options:
        pairs_sql = ", ".join(f"{literal(k)}, {literal(v)}" for k, v in procedure_options.items())
        arguments_sql.append(f"options => map({pairs_sql})")
    return f"CALL {identifier(catalog)}.system.{procedure}({', '.join(arguments_sql)})"


def orphan_arguments(table: str, location: str) -> dict[str, Any]:
    """The arguments of a dry run; object stores are listed by prefix, as their FileIO must be."""
    is_listed_by_prefix = location.startswith(("s3", "gs:", "abfs", "wasb"))
    arguments = {"table": table, "dry_run": True}
    return arguments | ({"prefix_listing": True} if is_listed_by_prefix else {})


def set_properties_sql(table: Sequence[str], properties: dict[str, str]) -> str:
    """Write ``ALTER TABLE … SET TBLPROPERTIES (…)``; ``table`` includes the catalog."""
    pairs_sql = ", ".join(f"{literal(k)} = {literal(v)}" for k, v in properties.items())
    return f"ALTER TABLE {identifier(*table)} SET TBLPROPERTIES ({pairs_sql})"


def unset_properties_sql(table: Sequence[str], property_names: Sequence[str]) -> str:
    """Write ``ALTER TABLE … UNSET TBLPROPERTIES IF EXISTS (…)``; ``table`` includes the catalog."""
    return (
        f"ALTER TABLE {identifier(*table)} UNSET TBLPROPERTIES IF EXISTS "
        f"({', '.join(map(literal, property_names))})"
    )


def set_session_sql(name: str, value: str) -> str:
    """Write ``SET`` for a session's setting; a key with a hyphen is taken in backticks only, and
    its value with it.
    """
    return (
        f"SET {name} = {value}"
        if _PLAIN_KEY.fullmatch(name)
        else f"SET {identifier(name)} = {identifier(value)}"
    )


def reset_session_sql(name: str) -> str:
    """Write ``RESET`` for a session's setting."""
    return "RESET " + (name if _PLAIN_KEY.fullmatch(name) else identifier(name))


def transform_sql(column: str, transform: str) -> str:
    """A partition transform, named as in a spec (``bucket[16]``, ``day``), of a quoted column, as
    Spark's DDL writes it.
    """
    transform_name, _, width = transform.partition("[")
    if width:
        return f"{transform_name}({width.rstrip(']')}, {column})"
    return column if transform_name == "identity" else f"{transform_name}s({column})"


_QUOTED = re.compile(
    r"""[rR]'[^']*'|[rR]"[^"]*"|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|`(?:``|[^`])*`""", re.S
)


def without_quoted_parts(text: str) -> str:
    """The parts of a text outside quotes and backticks; each quoted part is replaced by a pair of
    quotes.
    """
    return _QUOTED.sub("''", text)
