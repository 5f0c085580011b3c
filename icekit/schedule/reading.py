"""Read a policy file: its rules merged with the defaults, or every error in it, by line; and describe the policy in words."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError

from icekit.errors import ParameterError, first_line, nearest
from icekit.schedule.policy import ACTIONS, PassBudget, Receiver, Rule, SchedulePolicy, Settings
from icekit.secrets import unquoted_yaml
from icekit.units import count, plain, span, stated

# --- Read YAML as plain data, with the line of each key, and reject duplicate keys


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


@dataclass(frozen=True)
class Marked:
    """The plain data of a YAML file, and where each part begins."""

    data: Any
    lines: dict[Place, int]
    problems: tuple[Problem, ...] = ()

    def line(self, place: Place) -> int:
        """The line of a key, or of the nearest enclosing key if it is not in the file."""
        while place and place not in self.lines:
            place = place[:-1]
        return self.lines.get(place, 1)


def _is_private(place: Place) -> bool:
    """Whether a value holds an address or a part of one, whatever its shape: it is never repeated."""
    return place[:1] == ("notify",)


def key_of(place: Place) -> str:
    """``tables[0].compact.budget``, as a person would say it."""
    said = ""
    if _is_private(place):
        place = tuple(part for part in place if isinstance(part, int) or part in {"notify", *Receiver.model_fields})
    for part in place:
        said += f"[{part}]" if isinstance(part, int) else f"{'.' if said else ''}{part}"
    return said


def read_marked(text: str) -> Marked:
    """Read one YAML document; YAML errors are in ``problems``, and then the data is unreliable."""
    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        found = _Walk(loader)
        data = None if node is None else found.value(node, ())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        said = f"this is not YAML: {unquoted_yaml(error.problem or error.context or '')}"
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
        raise ParameterError(f"{path} is not UTF-8 text. Save it as UTF-8.") from None
    except OSError as error:
        raise ParameterError(
            f"{path} cannot be read ({error.strerror}). Give a policy file, or create one: `icekit schedule example > policy.yaml`."
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
        said = "it cannot be read" if _is_private(place) else f"{node.value!r} cannot be read: {said}"
        self.problems.append(Problem(node.start_mark.line + 1, key_of(place), said))
        return None

    def _entries(self, node: yaml.MappingNode, place: Place) -> Iterator[tuple[str, yaml.Node]]:
        first: dict[Hashable, int] = {}
        for name, below in node.value:
            # As written: YAML 1.1 turns `on` into true.
            key, line = str(name.value), name.start_mark.line + 1
            if not isinstance(name, yaml.ScalarNode):
                self.problems.append(Problem(line, key_of(place), "a key must be a word"))
                continue
            if key in first:
                self.problems.append(Problem(line, key_of((*place, key)), f"this key appears twice, first in line {first[key]}; keep one"))
                continue
            first[key] = line
            self.lines[(*place, key)] = line
            yield key, below


#: Of the values under ``notify``, only ``remind`` is read by icekit's own code.
_UNREADABLE = "it is not a duration that can be used; write it as 30 minutes, 2 hours or 7 days"
_DEFAULTS = "defaults"
# Sections of a rule that are merged with the defaults key by key; other keys replace theirs.
_SECTIONS = ("when", "thresholds", "compact", "convert", "maintain")


class PolicyError(ParameterError):
    """An invalid policy; ``problems`` are all errors, by line."""

    def __init__(self, path: Path, problems: list[Problem]) -> None:
        self.problems = tuple(sorted(set(problems)))
        lines = [f"{path}:{p.line}: {p.key + ': ' if p.key else ''}{p.said.rstrip('.')}" for p in self.problems]
        super().__init__(
            "\n".join(
                [
                    f"{path} has {count(len(lines), 'error')}. Fix them and check again with `icekit schedule check {path}`.",
                    *lines,
                ]
            )
        )


def read_policy(path: Path) -> SchedulePolicy:
    """Read and check a policy; raises :class:`PolicyError` with every error, its line and the nearest known key."""
    path = path.expanduser().absolute()
    return parse_policy(read_text(path), path)


def parse_policy(text: str, path: Path) -> SchedulePolicy:
    """As :func:`read_policy`, for the text of the file ``path``."""
    marked = read_marked(text)
    problems = list(marked.problems)
    if marked.problems and marked.data is None:
        raise PolicyError(path, problems)
    if not isinstance(marked.data, dict):
        raise PolicyError(path, [Problem(1, "", "it has no keys; `icekit schedule example` prints a policy to start from")])
    data = dict(marked.data)
    defaults = data.pop(_DEFAULTS, None) or {}
    problems += _of(Settings, defaults, marked, (_DEFAULTS,))
    problems += _executed_by_default(defaults, marked)
    rules = data.get("tables")
    own_errors = len(problems)
    if isinstance(rules, list):
        named = [_named(rule, f"rule-{place + 1}") for place, rule in enumerate(rules)]
        for place, rule in enumerate(named):
            problems += _of(Rule, rule, marked, ("tables", place))
        if len(problems) == own_errors == len(marked.problems) and isinstance(defaults, dict):
            # The parts are valid by themselves; together they may not be.
            named = [_laid_over(defaults, rule) for rule in named]
            for place, rule in enumerate(named):
                problems += _of(Rule, rule, marked, ("tables", place))
        data["tables"] = named
    if isinstance(data.get("notify"), list):
        data["notify"] = [_named(one, f"receiver-{place + 1}") for place, one in enumerate(data["notify"])]
        for place, one in enumerate(data["notify"]):
            problems += _of(Receiver, one, marked, ("notify", place))
    data.setdefault("name", path.stem)
    try:
        policy = SchedulePolicy.model_validate(data)
    except ValidationError as error:
        # Errors inside a rule or a receiver were already reported for that part.
        problems += [p for p in _problems(SchedulePolicy, error, marked, ()) if not re.match(r"(tables|notify)\[", p.key)]
    if problems:
        raise PolicyError(path, problems)
    return _absolute(policy, path)


def _named(section: Any, name: str) -> Any:
    return {"name": name, **section} if isinstance(section, dict) else section


def _executed_by_default(defaults: Any, marked: Marked) -> list[Problem]:
    """A rule's own ``compact: {}`` must mean what it says: planned, but not run."""
    found = []
    for name in ACTIONS:
        section = defaults.get(name) if isinstance(defaults, dict) else None
        if isinstance(section, dict) and section.get("execute") is True:
            place: Place = (_DEFAULTS, name, "execute")
            said = f"defaults cannot say execute: true. Write `{name}: {{execute: true}}` in each rule whose tables may be changed, and the rest of the section here"
            found.append(Problem(marked.line(place), key_of(place), said))
    return found


def _laid_over(defaults: Mapping[str, Any], rule: Mapping[str, Any]) -> dict[str, Any]:
    """A rule merged with the defaults."""
    laid = {**defaults, **rule}
    for name in _SECTIONS:
        below, above = defaults.get(name), rule.get(name)
        if isinstance(below, dict) and isinstance(above, dict):
            laid[name] = {**below, **above}
    return laid


def _absolute(policy: SchedulePolicy, path: Path) -> SchedulePolicy:
    """Paths are relative to the policy's folder, wherever the scheduler starts."""

    def at(given: Path | None) -> Path | None:
        return None if given is None else path.parent / given.expanduser()

    def named(store: str) -> str:
        return str(at(Path(store))) if store else ""

    return policy.model_copy(
        update={
            "output": at(policy.output),
            "state": at(policy.state),
            "ledger": named(policy.ledger),
            "history": policy.history if policy.history == "table" else named(policy.history),
            "junit": at(policy.junit),
        }
    )


def _of(model: type[BaseModel], data: Any, marked: Marked, base: Place) -> list[Problem]:
    try:
        model.model_validate(data)
    except ValidationError as error:
        return _problems(model, error, marked, base)
    return []


def _problems(model: type[BaseModel], error: ValidationError, marked: Marked, base: Place) -> list[Problem]:
    found = []
    for one in error.errors(include_url=False):
        if one["type"] == "too_short" and one["input"]:
            continue  # of items that were rejected
        place = (*base, *one["loc"])
        said = _said(model, one, place[len(base) :], is_private=_is_private(place))
        found.append(Problem(marked.line(place), key_of(place), said))
    return found


def _said(model: type[BaseModel], one: Any, place: Place, *, is_private: bool) -> str:
    kind, given = one["type"], one.get("input")
    shown = "it" if is_private else repr(given)
    if kind == "extra_forbidden":
        known = [*keys_at(model, place[:-1]), *([_DEFAULTS] if model is SchedulePolicy and len(place) == 1 else [])]
        return f"there is no such key{nearest(str(place[-1]), known, count=1) or '; the keys here are ' + ', '.join(known)}"
    if kind == "missing":
        return "this key is missing"
    if kind == "literal_error":
        wanted = [w.strip(" '") for w in one["ctx"]["expected"].replace(" or ", ", ").split(",")]
        return f"{shown} is not one of {', '.join(wanted)}{nearest(str(given), wanted, count=1)}"
    if kind == "icekit":
        return _UNREADABLE if is_private else str(one["msg"]).rstrip(".")
    if kind == "bool_type":
        return f"{shown} is not true or false"
    if kind == "string_pattern_mismatch":
        return f"{shown} must be letters, digits, dots, dashes and underscores"
    if kind == "too_short":
        return "it is empty; a policy needs a rule, such as `- match: db.*`" if place == ("tables",) else "it is empty"
    if kind in {"model_type", "tuple_type", "mapping_type", "model_attributes_type"}:
        wanted_kind = "a list (- ...)" if kind == "tuple_type" else "a section of keys"
        return f"it must be {wanted_kind}" if is_private else f"it must be {wanted_kind}, not {shown}"
    return f"{shown}: {one['msg'][0].lower()}{one['msg'][1:]}"


def keys_at(model: type[BaseModel], place: Place) -> list[str]:
    """The keys that a section of a model accepts."""
    for part in place:
        if isinstance(part, int):
            continue
        field = model.model_fields.get(part)
        below = _model_in(field.annotation) if field else None
        if below is None:
            return []
        model = below
    return list(model.model_fields)


def _model_in(kind: Any) -> type[BaseModel] | None:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return kind
    if get_origin(kind) in {tuple, Union, UnionType} or hasattr(kind, "__metadata__"):
        return next((found for part in get_args(kind) if (found := _model_in(part))), None)
    return None


# --- Describe in words what a policy allows, rule by rule; pure


_DOES = {
    "convert": "turns equality deletes into position deletes",
    "compact": "rewrites data files",
    "maintain": "runs maintenance",
}


def in_words(policy: SchedulePolicy) -> str:
    """What the policy would allow, for a person to read before trusting it."""
    runs = [rule.name for rule in policy.tables if any(a.execute for a in rule.actions.values())]
    lines = [
        f"Policy {policy.name} for catalog {policy.catalog or 'lake (embedded)'}: {count(len(policy.tables), 'rule')}, times in {policy.timezone.key}.",
        f"It changes tables of {', '.join(runs)}." if runs else "It changes no table: no rule says execute: true.",
    ]
    if limits := _limits(policy.budget):
        lines.append(f"One pass may read {limits}, for all tables together.")
    for rule in policy.tables:
        lines += [
            "",
            f"{rule.name}: {', '.join(rule.match)}{' but not ' + ', '.join(rule.exclude) if rule.exclude else ''}",
            *(f"  {said}" for said in _rule(rule)),
        ]
    lines += ["", *_rest(policy)]
    return "\n".join(lines).rstrip()


def _rule(rule: Rule) -> list[str]:
    when = rule.when
    counted = (("commit", when.commits), ("delete record", when.delete_records), ("small file", when.small_files))
    due = [count(value, noun) for noun, value in counted if value]
    if when.every is not None:
        due.append(f"{span(when.every * 1000)} since its last pass")
    said = [f"due after {' or '.join(due)}"]
    if rule.hours:
        said.append(f"runs work {', '.join(h.said for h in rule.hours)}; at other times only reports and plans")
    if rule.quiet_hours:
        said.append(f"does nothing {', '.join(h.said for h in rule.quiet_hours)}")
    if rule.fail_on != "never":
        said.append(f"unhealthy from severity {rule.fail_on} on")
    if rule.thresholds:
        said.append("thresholds: " + ", ".join(f"{k}={plain(v, 6)}" for k, v in rule.thresholds.items()))
    if rule.filter_columns:
        said.append(f"queries filter by {', '.join(rule.filter_columns)}")
    for name, section in rule.actions.items():
        what = _DOES[name]
        more = []
        if name == "maintain" and rule.maintain:
            more.append(", ".join(rule.maintain.procedures))
            keep = rule.maintain.retention()
            if keep.keep_hours is not None:
                more.append(f"keeps snapshots of {span(keep.keep_hours * 3_600_000)}")
            if keep.keep_last is not None:
                more.append(f"and the last {keep.keep_last:,}")
        if name == "compact" and rule.compact:
            if limits := _limits(rule.compact.budget):
                more.append(f"up to {limits}")
            given = {k: getattr(rule.compact, k) for k in ("scope", "strategy", "columns", "since", "until", "skip_last", "leave_alone")}
            more += [f"{k.replace('_', ' ')} {v}" for k, v in given.items() if v is not None]
        said.append(
            f"{name}: {what if section.execute else 'is planned and reported, but NOT run'}{' (' + ', '.join(more) + ')' if more else ''}"
        )
    if not rule.actions:
        said.append("reports only")
    return said


def _rest(policy: SchedulePolicy) -> list[str]:
    said = [f"Reports: {policy.output}{' at ' + policy.url if policy.url else ''}"]
    if policy.junit:
        said.append(f"JUnit: {policy.junit}")
    for one in policy.notify:
        again = f", again after {span(one.remind * 1000)}" if one.remind else ""
        said.append(f"{one.name} is notified of {', '.join(one.about)}{again}")
    return said or ["Nobody is notified."]


def _limits(budget: PassBudget) -> str:
    parts = [
        stated(budget.bytes) if budget.bytes is not None else "",
        count(budget.files, "file") if budget.files is not None else "",
        span(budget.seconds * 1000) if budget.seconds is not None else "",
    ]
    return ", ".join(filter(None, parts))
