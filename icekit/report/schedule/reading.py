"""Read a policy file, or every error in it with line and nearest key; and describe the policy in
words.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from icekit.common.commands import SECTIONS
from icekit.common.errors import IcekitError, ParameterError, require_known
from icekit.common.files import bounded_text
from icekit.common.options import Settings
from icekit.common.secrets import unquoted_yaml
from icekit.common.units import count
from icekit.report.schedule.policy import Rule, SchedulePolicy, read

#: The most bytes of a policy's file, the most values in it (one that an alias repeats counts each
# time), and the most levels of lists and mappings.
MOST_BYTES = 1 << 18
MOST_VALUES = 20_000
MOST_LEVELS = 20

_NO_KEYS = (
    "it has no keys; `icekit schedule example` prints a policy to start from (a section without "
    "options is `{}`)"
)


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """An error in a file: its line (from 1), the key, and what is wrong."""

    line: int
    key: str
    message: str

    def __str__(self) -> str:
        return ": ".join(filter(None, (str(self.line), self.key, self.message)))


class _TooLarge(Exception):
    """A policy has more values or levels than one may have."""

    def __init__(self, line: int, key: str, limit: str) -> None:
        super().__init__(limit)
        self.line = line
        self.key = key
        self.message = (
            f"it has more than {limit}, counting what each alias repeats; make it smaller"
        )


@dataclass
class _Reader:
    """Reads settings from the nodes of a YAML document, and notes everything that is wrong.

    Values stay as they are written: the readers of the options read text, as on the command line.
    What stands under a key, such as an address, is not repeated here. What stands under an unknown
    key is not read.
    """

    problems: list[Problem] = field(default_factory=list)
    value_count: int = 0

    def note(self, line: int, key: str, message: str) -> None:
        """Note what is wrong."""
        self.problems.append(Problem(line, key.removeprefix("."), message.rstrip(".")))

    def settings(
        self, kind: type[Settings], node: Any, line: int = 1, path: str = "", **defaults: str
    ) -> Any:
        """Read settings, or note what is wrong with each key, or else with all of them together."""
        if not isinstance(node, yaml.MappingNode):
            self.note(line, path, _NO_KEYS)
            return None
        values: dict[str, Any] = {**defaults}
        lines = dict.fromkeys(defaults, line)
        for key, (key_line, below) in self._pairs(node, path).items():
            try:
                require_known(key, kind.declared, "parameter")
            except ParameterError as unknown:
                self.note(key_line, f"{path}.{key}", str(unknown))
                continue
            lines[key] = key_line
            values[key] = self._value(kind, key, below, key_line, f"{path}.{key}")
        try:
            return read(kind, values)
        except IcekitError as error:
            before = len(self.problems)
            for key, value in values.items():
                try:
                    read(kind, {key: value})
                except IcekitError as of_key:
                    self.note(lines[key], f"{path}.{key}", str(of_key))
            if len(self.problems) == before:
                self.note(line, path, str(error))
            return None

    def _value(self, kind: type[Settings], key: str, node: Any, line: int, path: str) -> Any:
        if kind is Rule and key in SECTIONS:
            return self.settings(SECTIONS[key], node, line, path)
        if kind is SchedulePolicy and key == "rules" and isinstance(node, yaml.SequenceNode):
            self._count(node, path)
            return tuple(
                self.settings(
                    Rule,
                    rule,
                    rule.start_mark.line + 1,
                    f"{path}[{index}]",
                    name=f"rule-{index + 1}",
                    match="",
                )
                for index, rule in enumerate(node.value)
            )
        return self._plain(node, path)

    def _pairs(self, node: yaml.MappingNode, path: str) -> dict[str, tuple[int, Any]]:
        """The values of a mapping, with the lines of their keys."""
        self._count(node, path)
        pairs: dict[str, tuple[int, Any]] = {}
        for name, below in node.value:
            key = str(name.value)
            line = name.start_mark.line + 1
            if key in pairs:
                message = f"a key appears twice, first in line {pairs[key][0]}; keep one"
                self.note(line, path, message)
            pairs[key] = line, below
        return pairs

    def _plain(self, node: yaml.Node, path: str, level: int = 0) -> Any:
        """A value as text, lists and mappings."""
        if level > MOST_LEVELS:
            raise _TooLarge(node.start_mark.line + 1, path, f"{MOST_LEVELS} levels")
        if isinstance(node, yaml.SequenceNode):
            self._count(node, path)
            return [self._plain(below, path, level + 1) for below in node.value]
        if isinstance(node, yaml.MappingNode):
            pairs = self._pairs(node, path)
            return {key: self._plain(below, path, level + 1) for key, (_, below) in pairs.items()}
        return node.value

    def _count(self, node: yaml.CollectionNode, path: str) -> None:
        """Count the values of a list or a mapping each time that it is read."""
        self.value_count += len(node.value)
        if self.value_count > MOST_VALUES:
            raise _TooLarge(node.start_mark.line + 1, path, f"{MOST_VALUES:,} values")


class PolicyError(ParameterError):
    """An invalid policy; ``problems`` are all errors, by line."""

    def __init__(self, path: Path, problems: list[Problem]) -> None:
        self.problems = tuple(sorted(set(problems)))
        summary = (
            f"{path} has {count(len(self.problems), 'error')}. Fix them and check again with "
            f"`icekit schedule check {path}`."
        )
        super().__init__("\n".join([summary, *(f"{path}:{p}" for p in self.problems)]))


def read_policy(path: Path) -> SchedulePolicy:
    """Read and check a policy; raises :class:`PolicyError` with every error, its line and the
    nearest known key.
    """
    path = path.expanduser().absolute()
    instead = "Give a policy file, or create one: `icekit schedule example > policy.yaml`."
    return parse_policy(bounded_text(path, MOST_BYTES, instead), path)


def parse_policy(text: str, path: Path) -> SchedulePolicy:
    """As :func:`read_policy`, for the text of the file ``path``."""
    reader = _Reader()
    policy: SchedulePolicy | None = None
    try:
        node = yaml.compose(text, yaml.SafeLoader)
        policy = reader.settings(SchedulePolicy, node, name=path.stem, rules="")
    except _TooLarge as error:
        reader.note(error.line, error.key, error.message)
    except RecursionError:
        reader.note(1, "", "it is nested too deeply to be read")
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        message = unquoted_yaml(error.problem or error.context or "")
        line = mark.line + 1 if mark else 1
        reader.note(line, "", f"this is not YAML: {message}")
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        reader.note(line, "", f"this is not YAML: {error.reason}")
    if policy is None or reader.problems:
        raise PolicyError(path, reader.problems)
    return policy.within(path.parent)


def in_words(policy: SchedulePolicy) -> str:
    """What the policy would allow, for a person to read before trusting it."""
    runs = ", ".join(rule.name for rule in policy.rules if rule.execute and rule.actions)
    changes = f"It changes tables of {runs}."
    lines = [changes if runs else "It changes no table: no rule says execute: true."]
    for rule in policy.rules:
        tables = map(", ".join, filter(None, (rule.match, rule.exclude)))
        lines.append(f"{rule.name}: {' but not '.join(tables)}")
        for name, section in rule.actions.items():
            verb = "planned, but NOT run"
            if rule.execute:
                is_checked = section.limits.prove != "none"
                verb = "run, checked and proved" if is_checked else "run, but NOT checked"
            lines.append(f"  {name}: {verb} {section.given}")
    window = policy.hours.text if policy.hours else "at any time"
    lines.append(f"A pass works {window}, and writes into {policy.output}.")
    return "\n".join(lines)
