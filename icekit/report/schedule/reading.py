"""Read a policy file, or every error in it with line and nearest key; and describe the policy in
words.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from icekit.common.commands.schedule import SECTIONS
from icekit.common.errors import IcekitError, ParameterError, require_known
from icekit.common.files import bounded_text
from icekit.common.options import Settings
from icekit.common.secrets import without_yaml_quotes
from icekit.common.units import count
from icekit.report.schedule.policy import Rule, SchedulePolicy, command_options

#: The most bytes of a policy's file.
MOST_BYTES = 1 << 18

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


class PolicyError(ParameterError):
    """An invalid policy; ``problems`` are all errors, by line."""

    def __init__(self, path: Path, problems: list[Problem]) -> None:
        self.problems = tuple(sorted(set(problems)))
        summary = (
            f"{path} has {count(len(self.problems), 'error')}. Fix them and check again with "
            f"`icekit schedule check {path}`."
        )
        super().__init__("\n".join([summary, *(f"{path}:{p}" for p in self.problems)]))


class _Mapping(dict[Any, Any]):
    """A mapping of a YAML file, with its line and those of its keys."""

    line: int
    lines: dict[str, int]


class _Loader(yaml.BaseLoader):
    """Reads values as they are written: the readers of the options read text, as on the command
    line. A key that appears twice is an error. So is an alias, with which a small file could repeat
    a value without end.
    """

    def compose_node(self, parent: Any, index: Any) -> Any:
        """A node of the file."""
        if self.check_event(yaml.AliasEvent):
            alias: Any = self.peek_event()  # type: ignore[no-untyped-call]
            message = "an alias stands for a value; write the value"
            raise yaml.MarkedYAMLError(problem=message, problem_mark=alias.start_mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> _Mapping:
        """A mapping of the file."""
        del deep  # its values are read with it
        mapping = _Mapping(super().construct_mapping(node, deep=True))
        mapping.line = node.start_mark.line + 1
        mapping.lines = {}
        for key, _ in node.value:
            if key.value in mapping.lines:
                message = f"a key appears twice, first in line {mapping.lines[key.value]}; keep one"
                raise yaml.MarkedYAMLError(problem=message, problem_mark=key.start_mark)
            mapping.lines[key.value] = key.start_mark.line + 1
        return mapping


@dataclass
class _Reader:
    """Reads the settings of a policy, and notes everything that is wrong with them.

    What stands under a key, such as an address, is not repeated here. What stands under an unknown
    key is not read.
    """

    problems: list[Problem] = field(default_factory=list)

    def note(self, line: int, key: str, message: str) -> None:
        """Note what is wrong."""
        self.problems.append(Problem(line, key.removeprefix("."), message.rstrip(".")))

    def settings(
        self, kind: type[Settings], mapping: Any, line: int = 1, path: str = "", **defaults: str
    ) -> Any:
        """Read settings, or note what is wrong with each key, or else with all of them together."""
        if not isinstance(mapping, _Mapping):
            self.note(line, path, _NO_KEYS)
            return None
        values: dict[str, Any] = {**defaults}
        for key, value in mapping.items():
            try:
                require_known(key, kind.declarations, "parameter")
            except ParameterError as problem:
                self.note(mapping.lines[key], f"{path}.{key}", str(problem))
                continue
            values[key] = self._value(kind, key, value, mapping.lines[key], f"{path}.{key}")
        try:
            return command_options(kind.of(values))
        except IcekitError as problem:
            problem_count = len(self.problems)
            for key, value in values.items():
                try:
                    command_options(kind.of({key: value}))
                except IcekitError as problem_of_key:
                    key_line = mapping.lines.get(key, mapping.line)
                    self.note(key_line, f"{path}.{key}", str(problem_of_key))
            if len(self.problems) == problem_count:
                self.note(line, path, str(problem))
            return None

    def _value(self, kind: type[Settings], key: str, value: Any, line: int, path: str) -> Any:
        if kind is Rule and key in SECTIONS:
            return self.settings(SECTIONS[key], value, line, path)
        if kind is SchedulePolicy and key == "rules" and isinstance(value, list):
            return tuple(
                self.settings(
                    Rule,
                    rule,
                    getattr(rule, "line", line),
                    f"{path}[{index}]",
                    name=f"rule-{index + 1}",
                    match="",
                )
                for index, rule in enumerate(value)
            )
        return value


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
        mapping = _Loader(text).get_single_data()
        policy = reader.settings(SchedulePolicy, mapping, name=path.stem, rules="")
    except RecursionError:
        reader.note(1, "", "it is nested too deeply to be read")
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        message = without_yaml_quotes(problem.problem or problem.context or "")
        reader.note(mark.line + 1 if mark else 1, "", f"it cannot be read: {message}")
    except yaml.reader.ReaderError as problem:
        line = text.count("\n", 0, problem.position) + 1
        reader.note(line, "", f"it cannot be read: {problem.reason}")
    if policy is None or reader.problems:
        raise PolicyError(path, reader.problems)
    return policy.with_paths_from(path.parent)


def in_words(policy: SchedulePolicy) -> str:
    """What the policy would allow, for a person to read before trusting it."""
    changing_rules = [
        rule.name for rule in policy.rules if rule.execute and rule.options_by_command
    ]
    lines = ["It changes no table: no rule says execute: true."]
    if changing_rules:
        lines = [f"It changes tables of {', '.join(changing_rules)}."]
    for rule in policy.rules:
        lines.append(f"{rule.name}: {', '.join(rule.match)}")
        for command, options in rule.options_by_command.items():
            verb = "planned, but NOT run"
            if rule.execute:
                is_checked = options.limits.prove != "none"
                verb = "run, checked and proved" if is_checked else "run, but NOT checked"
            lines.append(f"  {command}: {verb} {options.given}")
    window = policy.hours.text if policy.hours else "at any time"
    lines.append(f"A pass works {window}, and writes into {policy.output}.")
    return "\n".join(lines)
