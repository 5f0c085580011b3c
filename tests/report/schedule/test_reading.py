"""A policy is read whole or refused with everything that is wrong with it."""

import re
from pathlib import Path

import pytest

from icekit.common.commands.compaction_policy import CompactionPolicy as CompactPolicy
from icekit.common.commands.schedule import SECTIONS
from icekit.common.errors import EXIT_MISCONFIGURED, ParameterError
from icekit.health.facts.retention import Retention
from icekit.report.schedule import PolicyError, read_policy
from icekit.report.schedule.one_pass import run_id_prefix
from icekit.report.schedule.policy import Rule, SchedulePolicy, limited_to
from icekit.report.schedule.reading import MOST_BYTES, in_words, parse_policy
from icekit.report.schedule.recipes import example
from tests.commands import command
from tests.golden import Golden
from tests.report.schedule.lakes import HERE, policy

RULE = "rules:\n  - match: db.*\n"


def problems(text: str) -> list[str]:
    with pytest.raises(PolicyError) as refused:
        parse_policy(text, HERE)
    return [*map(str, refused.value.problems)]


def test_the_example_is_a_policy_and_has_every_key() -> None:
    taken_up = "\n".join(
        line[2:] if line.startswith(("# catalog", "# ledger")) else line
        for line in example().split("\n")
    )
    assert [rule.name for rule in parse_policy(taken_up, HERE).rules] == [
        "upserts",
        "archive",
        "events",
        "others",
    ]
    optional = {*CompactPolicy.declarations, "where", "batch_bytes", "storage", "writer_keys"}
    optional -= {"budget"}
    for key in (
        {*SchedulePolicy.declarations, *Rule.declarations}
        | {name for section in SECTIONS.values() for name in section.declarations}
    ) - optional:
        assert f"{key}:" in example(), key


def test_the_page_on_policies_has_every_option_of_a_section() -> None:
    page = (Path(__file__).parents[3] / "docs" / "schedule.md").read_text()
    for name, section in SECTIONS.items():
        [row] = [line for line in page.splitlines() if line.startswith(f"| `{name}`")]
        assert set(re.findall(r"`(\w+)`", row)) == {name, *section.declarations}


def test_every_error_is_told_at_once_with_its_line_and_the_nearest_key(golden: Golden) -> None:
    found = problems(
        """budgte: 3 GB
hours: 22:00-06:00 Europe/Berln
budget: [1 GB, 2 GB]
rules:
  - match: db.*
    compact: {bugdet: 10 GB, scope: majr, prove: x}
    report: {thresholds: {min_file_ratio: 0.5}, timeout: -1}
  - mach: db.x
    convert: {batch_bytes: much}
    execute: "yes"
    fail_on: critcal
    maintain: {procedures: [expire_snapshot], keep: 1 minute, storage: 3}
    exclude: db.y
  - 3
"""
    )
    golden("schedule/errors.txt", "\n".join(found))


def test_the_message_names_file_and_line_as_an_editor_reads_them(tmp_path: Path) -> None:
    with pytest.raises(
        PolicyError,
        match=r"(?m)^/policies/policy\.yaml:3: rules\[0\]\.strategy: There is no parameter 'strategy'",
    ):
        parse_policy(RULE + "    strategy: sort\n", HERE)
    with pytest.raises(ParameterError, match="icekit schedule example"):
        read_policy(tmp_path / "none.yaml")


NO_POLICIES = [
    "# nothing",
    "- a",
    "a: [1",
    "a: 1\n\tb: 2",
    "rules: []",
    "rules:\n  - match: '*'",
    RULE + "    match: db.x",
    "name: a\nname: b\nrules: [{match: db.a}]",
    RULE + "    compact:",
    RULE + "    compact: true",
    RULE + "    compact: {budget: much}",
    RULE + "    compact:\n      since: 2026-02-01\n      until: 2026-01-01",
    RULE + "    compact: {since: 2026-13-01}",
    RULE + "    report: {thresholds: 3}",
    RULE + "  - match: db.x\n    name: rule-1",
    RULE + "    name: ../../etc",
    *(
        f"hours: {hours}\n{RULE}"
        for hours in (
            "Mon 22:00-06:00",
            "22-6",
            "22:00-22:00",
            "22:00-24:00",
            "22:00-06:00 Europe/Berln",
        )
    ),
]


def test_what_is_no_policy_is_refused_by_line(golden: Golden) -> None:
    refused = ["\n  ".join([text, *problems(text)]) for text in NO_POLICIES]

    golden("schedule/no-policies.txt", "\n\n".join(refused))


ALIAS = "- &a [x,x]\n    - [*a,*a]\n"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        # A small file with aliases could have values without end.
        (f"a:\n    {ALIAS}{RULE}", "3: it cannot be read: an alias stands for a value"),
        (f"{RULE}    match: &x [*x]", "3: it cannot be read: an alias stands for a value"),
        (f"{RULE}    report:\n     a: [x]\n", "4: rules[0].report.a: There is no parameter 'a'"),
        (f"rules: {'[' * 5_000}", "1: it is nested too deeply to be read"),
        ("rules:\n- match: \x01", "2: it cannot be read: special characters are not allowed"),
    ],
)
def test_a_policy_is_read_no_further_than_a_policy_can_go(text: str, problem: str) -> None:
    assert any(problem in each for each in problems(text)), problems(text)


def test_a_file_larger_than_a_policy_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(f"# {'x' * MOST_BYTES}\n{RULE}")
    with pytest.raises(ParameterError, match=r"is larger than 256 KiB. Give a policy file"):
        read_policy(tmp_path / "p.yaml")
    with pytest.raises(ParameterError, match="is larger than 256 KiB"):
        read_policy(Path("/dev/zero"))


def test_nothing_executes_unless_it_is_said() -> None:
    rule = policy("    compact: {}\n    convert: {}\n    maintain: {}\n").rules[0]
    assert rule.execute is False
    assert list(rule.options_by_command) == ["convert", "compact", "maintain"]
    assert policy().rules[0].options_by_command == {}


def test_a_section_is_read_by_the_parser_of_its_command() -> None:
    rule = policy(
        "    compact: {budget: 10 GB, leave_alone: 2 hours, prove: full}\n    maintain: {keep: 7 "
        "days}\n"
    ).rules[0]
    assert rule.compact is not None
    assert rule.maintain is not None
    assert rule.compact.settings.changed(CompactPolicy) == {
        "budget": "10 GB",
        "leave_alone": "2 hours",
    }
    assert rule.compact.limits.prove == "full"
    assert rule.compact.trial is False
    assert rule.maintain.settings["retention"] == Retention.of({"keep": "7 days"})
    assert "remove_orphan_files" not in rule.maintain.settings["procedures"]


def test_a_run_is_known_as_the_rules_own_until_the_rule_changes() -> None:
    def of(section: str, more: str = "") -> str:
        return run_id_prefix(policy(f"    maintain: {{{section}}}\n{more}").rules[0], "maintain")

    then = of("keep: 1 day")
    assert of("keep: 1 day, prove: full") == then
    assert of("keep: 30 days") != then
    assert of("keep: 1 day, procedures: [rewrite_manifests]") != then
    assert of("keep: 1 day", "    report: {thresholds: {snapshots: 5000}}\n") != then


def test_the_budget_of_a_rule_and_what_is_left_of_the_pass_are_together_the_smaller_one() -> None:
    own = CompactPolicy.of({"budget": "10 GB"})
    assert limited_to(own, {"budget_bytes": 5.0}).budget_bytes == 5
    assert limited_to(own, {}).budget_bytes == 10**10
    assert limited_to(own, {"budget_bytes": 1e12}).budget_bytes == 10**10
    assert limited_to(own, {"budget_files": 7}).budget_files == 7
    assert policy(budget="200 GB").budget == {"budget_bytes": 2e11}
    assert policy(budget="3 hours").budget == {"budget_minutes": 180}


def test_paths_are_meant_from_the_policys_folder(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(RULE + "output: out\nledger: runs.db\nhistory: h.db\n")
    read = read_policy(tmp_path / "p.yaml")
    assert read.name == "p"
    assert read.output == tmp_path / "out"
    assert read.ledger == f"{tmp_path}/runs.db"
    assert read.history == f"{tmp_path}/h.db"


def test_words_say_what_is_run_and_what_is_not(golden: Golden) -> None:
    section = "    compact: {budget: 1 GiB}\n"

    golden("schedule/executes.txt", in_words(policy(f"    execute: true\n{section}")))
    golden("schedule/plans.txt", in_words(policy(section, hours="22:00-06:00")))


TOKEN = "T1JJ3T3L2-A1BRTD4JD-TIiajkdnlazkcOXrIdevi7FQ"
ADDRESS = f"slack://{TOKEN}/#data"


@pytest.mark.parametrize(
    "given",
    [
        f"[{ADDRESS}]",
        f"{{to: '{ADDRESS}'}}",
        f"{{'{ADDRESS}': unhealthy}}",
        f"[[{ADDRESS}]]",
        f"{{'{ADDRESS}': a, '{ADDRESS}': b}}",
        f"!{TOKEN}!x y",
        f"*{TOKEN}",
        f"[&{TOKEN} a, &{TOKEN} b]",
        f"{{to: {ADDRESS}: x}}",
        f"'{ADDRESS}",
        f'"\\q{ADDRESS}"',
        f"{{!!int {TOKEN}: x}}",
    ],
)
def test_what_may_be_an_address_is_never_repeated(given: str, tmp_path: Path) -> None:
    text = f"catalog: {given}\nrules:\n  - match: db.*\n"
    with pytest.raises(PolicyError) as refused:
        parse_policy(text, HERE)
    (tmp_path / "p.yaml").write_text(text)

    status, printed = command("schedule", "check", str(tmp_path / "p.yaml"), "--debug")
    assert status == EXIT_MISCONFIGURED
    for said in (str(refused.value), repr(refused.value.problems), printed):
        assert TOKEN[:9] not in said, said
        assert "slack://" not in said


def test_an_address_in_place_of_a_catalog_is_not_repeated() -> None:
    for text in ("postgresql://me:sla/sh@h/db", "{uri: postgresql://me:sla/sh@h/db}"):
        with pytest.raises(
            PolicyError, match=r"policy\.yaml:1: catalog: It is not the name of a catalog"
        ) as refused:
            parse_policy(f"catalog: {text}\n{RULE}", HERE)
        assert "sla/sh" not in str(refused.value)
