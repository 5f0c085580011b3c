"""Read a policy file: its rules with the defaults laid under them, or everything that is wrong with it, by line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from icekit.errors import ParameterError, nearest
from icekit.schedule.marks import Marked, Place, Problem, key_of, read_marked, read_text
from icekit.schedule.model import ACTIONS, Policy, Receiver, Rule, Settings
from icekit.units import count

_DEFAULTS = "defaults"
# Sections of a rule that are laid over the defaults' key by key; other keys replace.
_SECTIONS = ("when", "thresholds", "compact", "convert", "maintain")


class PolicyError(ParameterError):
    """A policy that cannot be used; ``problems`` are all of them, by line."""

    def __init__(self, path: Path, problems: list[Problem]) -> None:
        self.problems = tuple(sorted(set(problems)))
        lines = [f"{path}:{p.line}: {p.key + ': ' if p.key else ''}{p.said.rstrip('.')}" for p in self.problems]
        super().__init__(
            "\n".join(
                [
                    f"{path} has {count(len(lines), 'error')}; mend what is named and check it again with `icekit policy {path}`.",
                    *lines,
                ]
            )
        )


def read_policy(path: Path) -> Policy:
    """Read and check a policy; raises :class:`PolicyError` with every error, its line and the nearest known key."""
    path = path.expanduser().absolute()
    return parse_policy(read_text(path), path)


def parse_policy(text: str, path: Path) -> Policy:
    """As :func:`read_policy`, for a text that stands in ``path``."""
    marked = read_marked(text)
    problems = list(marked.problems)
    if marked.problems and marked.data is None:
        raise PolicyError(path, problems)
    if not isinstance(marked.data, dict):
        raise PolicyError(path, [Problem(1, "", "it holds no keys; `icekit policy --example` prints a policy to begin with")])
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
            # The parts are right by themselves; together they may not be.
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
        policy = Policy.model_validate(data)
    except ValidationError as error:
        # What is wrong inside a rule or a receiver was said of it by itself.
        problems += [p for p in _problems(Policy, error, marked, ()) if not re.match(r"(tables|notify)\[", p.key)]
    if problems:
        raise PolicyError(path, problems)
    return _absolute(policy, path)


def _named(section: Any, name: str) -> Any:
    return {"name": name, **section} if isinstance(section, dict) else section


def _executed_by_default(defaults: Any, marked: Marked) -> list[Problem]:
    """A rule's own ``compact: {}`` must mean what it says: planned, and not run."""
    found = []
    for name in ACTIONS:
        section = defaults.get(name) if isinstance(defaults, dict) else None
        if isinstance(section, dict) and section.get("execute") is True:
            place: Place = (_DEFAULTS, name, "execute")
            said = f"defaults run nothing; write `{name}: {{execute: true}}` in each rule whose tables may be changed, and the rest of the section here"
            found.append(Problem(marked.line(place), key_of(place), said))
    return found


def _laid_over(defaults: Mapping[str, Any], rule: Mapping[str, Any]) -> dict[str, Any]:
    """A rule with the defaults under it."""
    laid = {**defaults, **rule}
    for name in _SECTIONS:
        below, above = defaults.get(name), rule.get(name)
        if isinstance(below, dict) and isinstance(above, dict):
            laid[name] = {**below, **above}
    return laid


def _absolute(policy: Policy, path: Path) -> Policy:
    """Paths are meant from where the policy is, wherever the scheduler starts."""

    def at(given: Path | None) -> Path | None:
        return None if given is None else path.parent / given.expanduser()

    def named(store: str) -> str:
        return store if store in {"", "table"} else str(at(Path(store)))

    watched = policy.monitoring.model_copy(update={"junit": at(policy.monitoring.junit), "prometheus": at(policy.monitoring.prometheus)})
    return policy.model_copy(
        update={
            "output": at(policy.output),
            "state": at(policy.state),
            "ledger": named(policy.ledger),
            "history": named(policy.history),
            "monitoring": watched,
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
            continue  # of the items that were refused
        place = (*base, *one["loc"])
        found.append(Problem(marked.line(place), key_of(place), _said(model, one, place[len(base) :])))
    return found


def _said(model: type[BaseModel], one: Any, place: Place) -> str:
    kind, given = one["type"], one.get("input")
    if kind == "extra_forbidden":
        known = [*keys_at(model, place[:-1]), *([_DEFAULTS] if model is Policy and len(place) == 1 else [])]
        return f"there is no such key{nearest(str(place[-1]), known, count=1) or '; there are ' + ', '.join(known)}"
    if kind == "missing":
        return "this key is missing"
    if kind == "literal_error":
        wanted = [w.strip(" '") for w in one["ctx"]["expected"].replace(" or ", ", ").split(",")]
        return f"{given!r} is none of {', '.join(wanted)}{nearest(str(given), wanted, count=1)}"
    if kind == "icekit":
        return str(one["msg"]).rstrip(".")
    if kind == "bool_type":
        return f"{given!r} is not true or false"
    if kind == "string_pattern_mismatch":
        return f"{given!r} must be letters, digits, dots, dashes and underscores"
    if kind == "too_short":
        return "it is empty; a policy needs a rule, such as `- match: db.*`" if place == ("tables",) else "it is empty"
    if kind in {"model_type", "tuple_type", "mapping_type", "model_attributes_type"}:
        return f"it must be {'a list (- ...)' if kind == 'tuple_type' else 'a section of keys'}, not {given!r}"
    return f"{given!r}: {one['msg'][0].lower()}{one['msg'][1:]}"


def keys_at(model: type[BaseModel], place: Place) -> list[str]:
    """The keys that a section of a model takes."""
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
