"""Read YAML as plain data, with the line that each key stands in, and refuse a key that is there twice."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from icekit.errors import ParameterError, first_line

#: Where a value is: keys and places in lists, from the top.
Place = tuple[str | int, ...]
# A policy of thousands of tables has globs; what is larger is nested aliases.
_MOST_NODES = 50_000


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """Something wrong in a file: its line (from 1), the key, and what is wrong with it."""

    line: int
    key: str
    said: str


@dataclass(frozen=True)
class Marked:
    """Plain data of a YAML file, and where each part of it begins."""

    data: Any
    lines: dict[Place, int]
    problems: tuple[Problem, ...] = ()

    def line(self, place: Place) -> int:
        """The line of a key; of the nearest one around it where it is not written."""
        while place and place not in self.lines:
            place = place[:-1]
        return self.lines.get(place, 1)


def key_of(place: Place) -> str:
    """``tables[0].compact.budget``, as a person would say it."""
    said = ""
    for part in place:
        said += f"[{part}]" if isinstance(part, int) else f"{'.' if said else ''}{part}"
    return said


def read_marked(text: str) -> Marked:
    """Read one YAML document; what is wrong with it as YAML is in ``problems``, and no data is then to be relied on."""
    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        found = _Walk(loader)
        data = None if node is None else found.value(node, ())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        said = f"this is not YAML: {error.problem or error.context}"
        if "found character '\\t'" in said or "\\t" in str(error.problem):
            said += "; indent with spaces"
        return Marked(None, {}, (Problem(mark.line + 1 if mark else 1, "", said),))
    except (yaml.YAMLError, RecursionError) as error:
        return Marked(None, {}, (Problem(1, "", f"this is not YAML: {first_line(error)}"),))
    finally:
        loader.dispose()
    return Marked(data, found.lines, tuple(found.problems))


def read_text(path: Path) -> str:
    """The text of a file; raises :class:`~icekit.errors.ParameterError` if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ParameterError(f"{path} is not UTF-8 text; save it as that.") from None
    except OSError as error:
        raise ParameterError(
            f"{path} cannot be read ({error.strerror}); name a policy file, or make one: `icekit policy --example > policy.yaml`."
        ) from None


@dataclass
class _Walk:
    loader: yaml.SafeLoader
    lines: dict[Place, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    nodes: int = 0

    def value(self, node: yaml.Node, place: Place) -> Any:
        self.nodes += 1
        if self.nodes > _MOST_NODES:
            raise yaml.YAMLError("it is too large, or its aliases repeat each other")
        self.lines.setdefault(place, node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode):
            return {key: self.value(below, (*place, key)) for key, below in self._entries(node, place)}
        if isinstance(node, yaml.SequenceNode):
            return [self.value(below, (*place, i)) for i, below in enumerate(node.value)]
        try:
            return self.loader.construct_object(node)
        except yaml.MarkedYAMLError as error:
            said = str(error.problem)
        except ValueError as error:
            said = str(error)
        self.problems.append(Problem(node.start_mark.line + 1, key_of(place), f"{node.value!r} cannot be read: {said}"))
        return None

    def _entries(self, node: yaml.MappingNode, place: Place) -> Iterator[tuple[str, yaml.Node]]:
        first: dict[Hashable, int] = {}
        for name, below in node.value:
            # As it is written: YAML 1.1 makes true of `on`.
            key, line = str(name.value), name.start_mark.line + 1
            if not isinstance(name, yaml.ScalarNode):
                self.problems.append(Problem(line, key_of(place), "a key must be a word"))
                continue
            if key in first:
                self.problems.append(Problem(line, key_of((*place, key)), f"this key is there twice, first in line {first[key]}; keep one"))
                continue
            first[key] = line
            self.lines[(*place, key)] = line
            yield key, below
