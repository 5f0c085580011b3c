"""Read a policy file, or every error in it with line and nearest key; and describe the policy in
words.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from icekit.errors import ParameterError, first_line, nearest
from icekit.options.commands import SECTIONS
from icekit.schedule.policy import Rule, SchedulePolicy
from icekit.secrets import unquoted_yaml
from icekit.units import count

#: The path to a value: keys and list positions, from the top.
Place = tuple[str | int, ...]
# A policy for thousands of tables uses globs; anything larger is nested aliases.
_MOST_NODES = 50_000


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """An error in a file: its line (from 1), the key, and what is wrong."""

    line: int
    key: str
    said: str


def _is_private(place: Place) -> bool:
    """Whether a value is an address or stands in place of one: it is never repeated."""
    return place[:1] == ("notify",)


def _key(place: Place) -> str:
    """``rules[0].compact.budget``, as a person would say it."""
    parts = place[:1] if _is_private(place) else place
    return "".join(
        f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts
    ).removeprefix(".")


@dataclass
class _Document:
    """A YAML document as texts, lists and mappings, with the line of each part and what is wrong
    with it as YAML.

    Values stay as they are written: the parsers of the options read text, as on the command line.
    """

    lines: dict[Place, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def read(self, text: str) -> Any:
        """The data; None if it is not YAML."""
        try:
            node = yaml.compose(text, yaml.SafeLoader)
            return node and self._value(node, ())
        except yaml.MarkedYAMLError as error:
            mark, said = (
                error.problem_mark or error.context_mark,
                unquoted_yaml(error.problem or error.context or ""),
            )
            tab = "; indent with spaces" if "\\t" in str(error.problem) else ""
            self.problems.append(
                Problem(mark.line + 1 if mark else 1, "", f"this is not YAML: {said}{tab}")
            )
        except (yaml.YAMLError, RecursionError) as error:
            self.problems.append(Problem(1, "", f"this is not YAML: {first_line(error)}"))
        return None

    def line(self, place: Place) -> int:
        """The line of a key, or of the nearest enclosing key if it is not in the file."""
        return self.lines.get(place) or (self.line(place[:-1]) if place else 1)

    def _value(self, node: yaml.Node, place: Place) -> Any:
        self.lines.setdefault(place, node.start_mark.line + 1)
        if len(self.lines) > _MOST_NODES:
            raise yaml.YAMLError("it is too large, or its aliases repeat each other")
        if isinstance(node, yaml.SequenceNode):
            return [self._value(below, (*place, i)) for i, below in enumerate(node.value)]
        if not isinstance(node, yaml.MappingNode):
            return node.value
        found: dict[str, Any] = {}
        for name, below in node.value:
            key, line = str(name.value), name.start_mark.line + 1
            at = (*place, key)
            if key in found:
                self.problems.append(
                    Problem(
                        line,
                        _key(at),
                        f"this key appears twice, first in line {self.lines[at]}; keep one",
                    )
                )
            self.lines.setdefault(at, line)
            found[key] = self._value(below, at)
        return found


class PolicyError(ParameterError):
    """An invalid policy; ``problems`` are all errors, by line."""

    def __init__(self, path: Path, problems: list[Problem]) -> None:
        self.problems = tuple(sorted(set(problems)))
        lines = [
            f"{path}:{p.line}: {p.key + ': ' if p.key else ''}{p.said.rstrip('.')}"
            for p in self.problems
        ]
        summary = (
            f"{path} has {count(len(lines), 'error')}. Fix them and check again with `icekit "
            f"schedule check {path}`."
        )
        super().__init__("\n".join([summary, *lines]))


def read_policy(path: Path) -> SchedulePolicy:
    """Read and check a policy; raises :class:`PolicyError` with every error, its line and the
    nearest known key.
    """
    path = path.expanduser().absolute()
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ParameterError(
            f"{path} cannot be read ({first_line(error)}). Give a policy file, or create one: "
            "`icekit schedule example > policy.yaml`."
        ) from None
    return parse_policy(text, path)


def parse_policy(text: str, path: Path) -> SchedulePolicy:
    """As :func:`read_policy`, for the text of the file ``path``."""
    document = _Document()
    data, problems = document.read(text), document.problems
    if not isinstance(data, dict):
        raise PolicyError(
            path,
            problems
            or [
                Problem(
                    1, "", "it has no keys; `icekit schedule example` prints a policy to start from"
                )
            ],
        )
    data.setdefault("name", path.stem)
    rules = data.get("rules")
    for place, rule in enumerate(rules if isinstance(rules, list) else []):
        if isinstance(rule, dict):
            rule.setdefault("name", f"rule-{place + 1}")
    try:
        policy = SchedulePolicy.model_validate(data)
    except ValidationError as error:
        # Items that were rejected leave a list too short.
        errors = [
            e for e in error.errors(include_url=False) if e["type"] != "too_short" or not e["input"]
        ]
        problems += [
            Problem(document.line(e["loc"]), _key(e["loc"]), _said(e, e["loc"])) for e in errors
        ]
    if problems:
        raise PolicyError(path, problems)
    return policy.within(path.parent)


def _said(error: Any, place: Place) -> str:
    kind, given, said = error["type"], error["input"], error["msg"]
    if _is_private(place):
        return "it is not an address"
    if kind == "extra_forbidden":
        model = Rule if "rules" in place else SchedulePolicy
        known = (
            tuple(SECTIONS[str(place[-2])].settings())
            if place[-2:-1] and place[-2] in SECTIONS
            else tuple(model.model_fields)
        )
        return (
            "there is no such "
            f"key{nearest(str(place[-1]), known, count=1) or '; the keys here are ' + ', '.join(known)}"
        )
    own = {
        "missing": "this key is missing",
        "too_short": "it is empty; a policy needs a rule, such as `- match: db.*`",
        "string_pattern_mismatch": f"{given!r} must be letters, digits, dots, dashes and "
        "underscores",
    }
    return said if kind == "icekit" else own.get(kind, f"{given!r}: {said}")


def in_words(policy: SchedulePolicy) -> str:
    """What the policy would allow, for a person to read before trusting it."""
    runs = [rule.name for rule in policy.rules if rule.execute and rule.actions]
    lines = [
        f"It changes tables of {', '.join(runs)}."
        if runs
        else "It changes no table: no rule says execute: true."
    ]
    for rule in policy.rules:
        lines.append(
            f"{rule.name}: "
            f"{', '.join(rule.match)}{' but not ' * bool(rule.exclude)}{', '.join(rule.exclude)}"
        )
        verb = "run, checked and proved" if rule.execute else "planned, but NOT run"
        lines += [f"  {name}: {verb} {section.given}" for name, section in rule.actions.items()]
    return "\n".join(
        [
            *lines,
            f"A pass works {policy.hours.text if policy.hours else 'at any time'}, and writes "
            f"into {policy.output}.",
        ]
    )
