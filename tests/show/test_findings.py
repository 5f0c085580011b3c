import html
from typing import Any

from icekit.diagnose.findings import Findings, Severity, covered_by, findings_html, summary, titles
from tests.factories import finding
from tests.golden import Golden


def test_a_finding_that_another_action_fixes_shows_no_second_rewrite() -> None:
    own = "CALL `prod`.system.rewrite_position_delete_files(table => 'db.events')"
    rewrites = [
        f"CALL `prod`.system.rewrite_data_files(table => 'db.events', options => map('{n}', '1'))"
        for n in "abc"
    ]
    shown = findings_html(
        [
            finding("small_files", sql=rewrites[:1]),
            finding("position_deletes", sql=(rewrites[1], own)),
            finding("equality_deletes", sql=rewrites[2:]),
        ]
    )

    assert [f"<pre>{html.escape(statement)}</pre>" in shown for statement in (*rewrites, own)] == [
        False,
        False,
        True,
        True,
    ]


def test_findings_that_one_action_fixes_are_listed_together() -> None:
    assert titles(["small_files", "executor_cache", "position_deletes", "equality_deletes"]) == [
        "small files, position deletes and equality deletes (one fix)",
        "executor cache",
    ]
    assert titles(["fragmented_manifests", "small_files"]) == [
        "fragmented manifests",
        "small files",
    ]
    assert covered_by(["small_files", "overlapping_manifests", "fragmented_manifests"]) == {
        "overlapping_manifests": "fragmented_manifests"
    }


def test_without_scripts_there_is_no_button() -> None:
    shown = findings_html([finding()])

    assert shown.count("<button") == shown.count('<button type="button" hidden onclick=') == 1
    assert (
        "@media (scripting: enabled) { .icekit.icekit .sql button[hidden] { display: block; } }"
        in shown
    )


def test_copying_needs_no_script_of_the_page_which_a_widget_does_not_run() -> None:
    assert "<script" not in findings_html([finding()])
    assert "<button" not in findings_html([finding(sql=())])


def test_everything_is_escaped() -> None:
    evil = "<script>alert(1)</script>"
    told: dict[str, Any] = dict.fromkeys(
        ("table", "evidence", "threshold", "source", "effect", "remedy"), evil
    )

    shown = findings_html([finding(evil, where=(evil,), sql=(), **told)])

    assert "<script" not in shown
    assert shown.count("&lt;script&gt;") == 7


def test_figures_stay_on_a_line_with_their_units() -> None:
    assert "12\N{NO-BREAK SPACE}% of 3.5\N{NO-BREAK SPACE}GiB in 4 files" in findings_html(
        [finding(evidence="12 % of 3.5 GiB in 4 files")]
    )


def test_findings_are_summed_up_by_severity() -> None:
    found = [
        finding(severity=Severity.CRITICAL),
        finding(),
        finding(),
        finding(severity=Severity.INFO),
    ]

    assert summary(found) == "4 findings: 1 critical, 2 warnings, 1 info"


def test_findings_look_like_their_golden_files(golden: Golden) -> None:
    several = Findings(
        [
            finding("old_partition_spec", Severity.CRITICAL, sql=("SELECT 1", "SELECT '<b>'")),
            finding(where=("p",) * 10, where_count=2000),
            finding("executor_cache", Severity.INFO, sql=(), where=()),
        ]
    )

    golden("findings/none.html", findings_html(Findings()))
    golden(
        "findings/several.html",
        findings_html(
            several,
            {"": "Together, they save 3.", "small_files": "Saves 3."},
            context=["Snapshot 7."],
        ),
    )
    assert several._repr_html_() == findings_html(several)
