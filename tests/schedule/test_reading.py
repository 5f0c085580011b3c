"""A policy is read whole or refused with everything that is wrong with it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from icekit.cli.main import main
from icekit.errors import EXIT_MISCONFIGURED, ParameterError
from icekit.schedule import PolicyError, read_policy
from icekit.schedule.policy import Compact, Maintain, PassBudget, Receiver, Rule
from icekit.schedule.reading import in_words, parse_policy
from icekit.schedule.recipes import example
from tests.schedule.making import HERE, policy

RULE = "version: 1\ntables:\n  - match: db.*\n"


def problems(text: str) -> list[tuple[int, str, str]]:
    with pytest.raises(PolicyError) as refused:
        parse_policy(text, HERE)
    return [(p.line, p.key, p.said) for p in refused.value.problems]


def test_the_example_is_a_policy_and_stays_one_when_its_comments_are_taken_up() -> None:
    assert len(parse_policy(example(), HERE).tables) == 3
    taken_up = "\n".join(line[2:] if line.startswith(("# notify", "#   ", "# url", "# ledger")) else line for line in example().split("\n"))
    assert [one.name for one in parse_policy(taken_up, HERE).notify] == ["team", "on-call"]


def test_the_example_has_every_key_that_a_rule_takes() -> None:
    for key in {*Rule.model_fields, "trial", "prove", *Maintain.model_fields} - {"trial", "prove", "storage", "strategy"}:
        assert f"{key}:" in example(), key


def test_every_error_is_told_at_once_with_its_line_and_the_nearest_key() -> None:
    found = problems(
        """version: 1
budgte: 3 GB
timezone: Europe/Berln
defaults:
  compact: {execute: false, bugdet: 10 GB}
  thresholds: {min_file_ratio: 0.5}
tables:
  - match: db.*
    quiet_hours: ["Mo-Fr 8-10"]
  - mach: db.x
    convert: {execute: "yes"}
    fail_on: critcal
    maintain: {procedures: [expire_snapshot], keep: 1 minute}
notify:
  - to: http://host
    about: [unhelthy]
"""
    )
    said = {(line, key): text for line, key, text in found}
    assert said[2, "budgte"] == "there is no such key; did you mean budget?"
    assert "did you mean Europe/Berlin?" in said[3, "timezone"]
    assert said[5, "defaults.compact.bugdet"] == "there is no such key; did you mean budget?"
    assert "did you mean min_file_size_ratio" in said[6, "defaults.thresholds"]
    assert "Write it as 22:00-06:00" in said[9, "tables[0].quiet_hours"]
    assert said[10, "tables[1].mach"] == "there is no such key; did you mean match?"
    assert said[10, "tables[1].match"] == "this key is missing"
    assert said[11, "tables[1].convert.execute"] == "'yes' is not true or false"
    assert "did you mean critical?" in said[12, "tables[1].fail_on"]
    assert "did you mean expire_snapshots?" in said[13, "tables[1].maintain.procedures[0]"]
    assert "must be 1 hour or more" in said[13, "tables[1].maintain.keep"]
    assert "did you mean unhealthy?" in said[16, "notify[0].about[0]"]
    assert len(found) == 12


def test_the_message_names_file_and_line_as_an_editor_reads_them() -> None:
    with pytest.raises(PolicyError, match=r"(?m)^/policies/policy\.yaml:4: tables\[0\]\.strategy: there is no such key") as refused:
        parse_policy(RULE + "    strategy: sort\n", HERE)
    assert refused.value.exit_status == EXIT_MISCONFIGURED


@pytest.mark.parametrize(
    ("text", "line", "told"),
    [
        ("", 1, "it has no keys"),
        ("- a", 1, "it has no keys"),
        ("a: [1", 1, "this is not YAML"),
        ("a: 1\n\tb: 2", 2, "indent with spaces"),
        ("version: 1\ntables: []", 2, "a policy needs a rule"),
        ("version: 2\ntables: [{match: db.a}]", 1, "not one of 1"),
        (RULE + "    match: db.x\n", 4, "twice, first in line 3"),
        ("version: 1\nversion: 1\ntables: [{match: db.a}]", 2, "twice, first in line 1"),
        (RULE + "    compact:\n", 4, "write `compact: {}` to plan it"),
        (RULE + "    compact: true\n", 4, "write `compact: {}` to plan it"),
        (RULE + "    compact: {budget: [1 GB, 2 GB]}\n", 4, "two limits of bytes"),
        (RULE + "    compact: {budget: much}\n", 4, "is not bytes (200 GB)"),
        (RULE + "    compact:\n      since: 2026-02-01\n      until: 2026-01-01\n", 4, "is not before until"),
        (RULE + "    compact: {since: 2026-13-01}\n", 4, "month must be in 1..12"),
        (RULE + "    when: {}\n", 4, "nothing would ever be due"),
        (RULE + "    when: {commits: 0}\n", 4, "greater than or equal to 1"),
        (RULE + "    hours: 9:00-9:00\n", 4, "For the full day write 00:00-24:00"),
        (RULE + "  - match: db.x\n    name: rule-1\n", 1, "two rules have the name 'rule-1'"),
        (RULE + "    name: ../../etc\n", 4, "must be letters, digits"),
        ("a: &x [*x]", 1, "this is not YAML"),
        ("a: &a [x, x]\nb: &b [*a, *a, *a, *a, *a, *a, *a]\n" + "".join(f"c{i}: &c{i} [{', '.join([f'*c{i - 1}' if i else '*b'] * 9)}]\n" for i in range(6)), 1, "too large"),
    ],
)  # fmt: skip
def test_what_is_no_policy_is_refused_by_line(text: str, line: int, told: str) -> None:
    found = problems(text)
    assert any(told in said and at == line for at, _, said in found), found


def test_a_rule_is_laid_over_the_defaults_key_by_key_and_false_takes_a_section_away() -> None:
    read = parse_policy(
        """version: 1
defaults:
  fail_on: warning
  thresholds: {snapshots: 50, min_file_size_ratio: 0.5}
  compact: {budget: 10 GB, leave_alone: 2 hours}
  maintain: {keep: 7 days}
tables:
  - match: db.a
    thresholds: {snapshots: 60}
    compact: {execute: true, budget: 500 files}
  - match: db.b
    compact: false
    maintain: false
    fail_on: never
""",
        HERE,
    )
    first, second = read.tables
    assert first.compact is not None
    assert (first.fail_on, dict(first.thresholds)) == ("warning", {"snapshots": 60, "min_file_size_ratio": 0.5})
    assert (first.compact.execute, first.compact.budget, first.compact.leave_alone) == (True, PassBudget(files=500), "2 hours")
    assert list(first.actions) == ["compact", "maintain"]
    assert (second.actions, second.fail_on) == ({}, "never")


def test_defaults_execute_nothing_so_that_a_rules_own_empty_section_only_plans() -> None:
    text = "version: 1\ndefaults:\n  compact:\n    budget: 1 GB\n    execute: true\ntables:\n  - match: db.*\n    compact: {}\n"
    [(line, key, said)] = problems(text)
    assert (line, key) == (5, "defaults.compact.execute")
    assert "Write `compact: {execute: true}` in each rule" in said
    assert parse_policy(text.replace("execute: true", "execute: false"), HERE).tables[0].compact is not None


def test_what_is_wrong_only_in_the_two_together_is_told_of_the_rule() -> None:
    text = "version: 1\ndefaults:\n  compact: {until: 2026-01-01}\ntables:\n  - match: db.a\n    compact: {since: 2026-02-01}\n"
    assert [(line, key) for line, key, _ in problems(text)] == [(6, "tables[0].compact")]


def test_nothing_executes_unless_it_is_said() -> None:
    read = policy("    compact: {}\n    convert: {}\n    maintain: {}\n")
    assert [section.execute for section in read.tables[0].actions.values()] == [False, False, False]
    assert policy().tables[0].actions == {}


def test_paths_are_meant_from_the_policys_folder(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(
        RULE + "output: out\nledger: runs.db\nhistory: h.db\ntimeout: 2 minutes\nstate: /var/s.db\njunit: j.xml\n"
    )
    read = read_policy(tmp_path / "p.yaml")
    assert (read.history, read.timeout) == (str(tmp_path / "h.db"), 120.0)
    assert (read.output, read.ledger, read.state) == (tmp_path / "out", str(tmp_path / "runs.db"), Path("/var/s.db"))
    assert (read.junit, read.name) == (tmp_path / "j.xml", "p")
    assert parse_policy(RULE + "history: table\n", HERE).history == "table"


def test_a_file_that_is_not_there_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="icekit schedule example"):
        read_policy(tmp_path / "none.yaml")


def test_a_budget_of_the_rule_and_a_share_of_the_pass_together_are_the_smaller_one() -> None:
    compact = Compact.model_validate({"budget": "10 GB", "min_files": 3})
    assert (compact.settings(5).budget_bytes, compact.settings().budget_bytes, compact.settings().min_files) == (5, 10**10, 3)


def test_words_say_what_is_run_and_what_is_not() -> None:
    text = in_words(policy("    compact: {execute: true, budget: 1 GiB}\n    maintain: {keep: 7 days}\n", budget="[2 GiB, 1 hour]"))
    assert "It changes tables of all." in text
    assert "One pass may read 2 GiB, 1 hour" in text
    assert "compact: rewrites data files (up to 1 GiB)" in text
    assert "maintain: is planned and reported, but NOT run" in text
    said = in_words(policy("    compact: {budget: 1 GB}\n", budget="[200 GB]"))
    assert "up to 1 GB" in said
    assert "may read 200 GB," in said
    assert "It changes no table" in in_words(policy("    compact: {}\n"))


def test_words_show_no_address() -> None:
    read = policy("notify:\n  - to: http://user:hunter2@host\n")
    assert "hunter2" not in in_words(read)


TOKEN = "T1JJ3T3L2-A1BRTD4JD-TIiajkdnlazkcOXrIdevi7FQ"
ADDRESS = f"slack://{TOKEN}/#data"


@pytest.mark.parametrize(
    "notify",
    [
        ADDRESS,
        f"'{ADDRESS}'",
        f"[{ADDRESS}]",
        f"{{name: team, to: '{ADDRESS}'}}",
        f"{{'{ADDRESS}': unhealthy}}",
        f"[[{ADDRESS}]]",
        f"[{{to: [{ADDRESS}]}}]",
        f"[{{to: {{slack: {TOKEN}}}}}]",
        f"[{{'{ADDRESS}': unhealthy}}]",
        f"[{{to: http://h, '{ADDRESS}': a}}]",
        f"[{{to: http://h, '{ADDRESS}': a, '{ADDRESS}': b}}]",
        f"[{{to: http://h, about: '{ADDRESS}'}}]",
        f"[{{to: http://h, remind: '{ADDRESS}'}}]",
        f"[{{to: http://h, remind: [{TOKEN}]}}]",
        f"[{{to: http://h, name: '{ADDRESS}'}}]",
        f"[{{to: !!int '{TOKEN}'}}]",
        f"[{{to: !!float '{TOKEN}'}}]",
        f"[{{to: !{TOKEN} x}}]",
        f"[{{to: !{TOKEN}!x y}}]",
        f"[{{to: *{TOKEN}}}]",
        f"[&{TOKEN} a, &{TOKEN} b]",
        f"[{{to: {ADDRESS}: x}}]",
        f"[{{to: '{ADDRESS}}}]",
        f'[{{to: "\\q{ADDRESS}"}}]',
        f"[{{to: http://h, !!int {TOKEN}: x}}]",
    ],
)
def test_what_is_given_under_notify_is_never_repeated(notify: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = f"version: 1\nnotify: {notify}\ntables:\n  - match: db.*\n"
    with pytest.raises(PolicyError) as refused:
        parse_policy(text, HERE)
    (tmp_path / "p.yaml").write_text(text)

    assert main(["schedule", "check", str(tmp_path / "p.yaml"), "--debug"]) == EXIT_MISCONFIGURED
    printed = capsys.readouterr()
    for said in (str(refused.value), repr(refused.value.problems), printed.out, printed.err):
        assert TOKEN[:9] not in said, said
        assert "slack://" not in said


def test_an_error_of_pydantic_and_a_policy_that_is_printed_hide_an_address() -> None:
    with pytest.raises(ValidationError) as refused:
        Receiver.model_validate({"name": "team", "to": [ADDRESS], "about": ADDRESS})
    read = parse_policy(f"version: 1\nnotify: [{{to: '{ADDRESS}'}}]\ntables:\n  - match: db.*\n", HERE)

    for said in (str(refused.value), repr(read), str(read.notify), in_words(read)):
        assert TOKEN[:9] not in said


def test_an_address_in_place_of_a_catalog_is_not_repeated() -> None:
    for text in ("postgresql://me:sla/sh@h/db", "{uri: postgresql://me:sla/sh@h/db}"):
        with pytest.raises(PolicyError, match=r"policy\.yaml:1: catalog: It is not the name of a catalog") as refused:
            parse_policy(f"catalog: {text}\n{RULE}", HERE)
        assert "sla/sh" not in str(refused.value)
