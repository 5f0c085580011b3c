"""Say in words what a policy allows, rule by rule; pure."""

from __future__ import annotations

from icekit.schedule.kinds import Budget
from icekit.schedule.model import Policy, Rule
from icekit.units import count, span, stated

_DOES = {
    "convert": "turns equality deletes into position deletes",
    "compact": "rewrites data files",
    "maintain": "runs maintenance",
}


def in_words(policy: Policy) -> str:
    """What the policy would allow, for whoever reads it before it is trusted."""
    runs = [rule.name for rule in policy.tables if any(a.execute for a in rule.actions.values())]
    lines = [
        f"Policy {policy.name} of catalog {policy.catalog or 'lake (embedded)'}: {count(len(policy.tables), 'rule')}, times in {policy.timezone.key}.",
        f"It changes tables of {', '.join(runs)}." if runs else "It changes no table: no rule says execute: true.",
    ]
    if limits := _limits(policy.budget):
        lines.append(f"One pass may read {limits}, over all tables together.")
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
        said.append(f"works {', '.join(h.said for h in rule.hours)}; at other times it only reports and plans")
    if rule.quiet_hours:
        said.append(f"keeps quiet {', '.join(h.said for h in rule.quiet_hours)}")
    if rule.fail_on != "never":
        said.append(f"is unhealthy from {rule.fail_on} on")
    if rule.thresholds:
        said.append("thresholds: " + ", ".join(f"{k}={v:g}" for k, v in rule.thresholds.items()))
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
            f"{name}: {what if section.execute else 'is planned and reported, and NOT run'}{' (' + ', '.join(more) + ')' if more else ''}"
        )
    if not rule.actions:
        said.append("reports only")
    return said


def _rest(policy: Policy) -> list[str]:
    said = [f"Reports: {policy.output}{' at ' + policy.url if policy.url else ''}"]
    for path, what in ((policy.monitoring.junit, "JUnit"), (policy.monitoring.prometheus, "Prometheus")):
        if path:
            said.append(f"{what}: {path}")
    for one in policy.notify:
        again = f", again after {span(one.remind * 1000)}" if one.remind else ""
        said.append(
            f"{one.name} is told of {', '.join(one.about)} by {one.to.partition('://')[0] if '://' in one.to else 'an address of the environment'}{again}"
        )
    return said or ["Nobody is told."]


def _limits(budget: Budget) -> str:
    parts = [
        stated(budget.bytes) if budget.bytes is not None else "",
        count(budget.files, "file") if budget.files is not None else "",
        span(budget.seconds * 1000) if budget.seconds is not None else "",
    ]
    return ", ".join(filter(None, parts))
