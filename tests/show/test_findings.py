import html
from typing import Any

from icekit.diagnose.findings import Findings, Severity, covered_by, findings_html, summary, titles
from icekit.units import raised
from tests import factories as make


def test_no_finding_is_an_answer() -> None:
    assert "Nothing to do: no finding at these thresholds." in findings_html(Findings())


def test_a_finding_tells_everything_it_rests_on() -> None:
    finding = make.finding(severity=Severity.CRITICAL)

    shown = findings_html([finding])

    for said in (
        finding.title,
        raised(finding.evidence),
        finding.effect,
        finding.threshold,
        finding.source,
        finding.remedy,
        finding.where[0],
    ):
        assert said in shown


def test_the_verdict_comes_first_with_what_all_remedies_save_together_and_of_which_snapshot() -> None:
    shown = findings_html([make.finding()], {"": "Together, they save 3."}, context=["Snapshot 7."])

    assert (
        shown.index("1 finding: 1 warning.") < shown.index("Together, they save 3.") < shown.index("Snapshot 7.") < shown.index("▲ warning")
    )


def test_severity_is_told_by_symbol_and_word() -> None:
    shown = findings_html([make.finding(severity=severity) for severity in Severity])

    assert [said in shown for said in ("✖ critical", "▲ warning", "● info")] == [True, True, True]


def test_each_statement_has_a_box_of_its_own() -> None:
    shown = findings_html([make.finding(sql=("SELECT 1", "SELECT 2"))])

    assert "<pre>SELECT 1</pre>" in shown
    assert "<pre>SELECT 2</pre>" in shown


def test_a_finding_that_another_action_fixes_shows_no_second_rewrite() -> None:
    own = "CALL `prod`.system.rewrite_position_delete_files(table => 'db.events')"
    rewrites = [f"CALL `prod`.system.rewrite_data_files(table => 'db.events', options => map('{n}', '1'))" for n in "abc"]
    shown = findings_html(
        [
            make.finding("small_files", sql=rewrites[:1]),
            make.finding("position_deletes", sql=(rewrites[1], own)),
            make.finding("equality_deletes", sql=rewrites[2:]),
        ]
    )

    assert [f"<pre>{html.escape(statement)}</pre>" in shown for statement in (*rewrites, own)] == [False, False, True, True]


def test_findings_that_one_action_fixes_are_listed_together() -> None:
    assert titles(["small_files", "executor_cache", "position_deletes", "equality_deletes"]) == [
        "small files, position deletes and equality deletes (one fix)",
        "executor cache",
    ]
    assert titles(["fragmented_manifests", "small_files"]) == ["fragmented manifests", "small files"]
    assert covered_by(["small_files", "overlapping_manifests", "fragmented_manifests"]) == {"overlapping_manifests": "fragmented_manifests"}


def test_without_scripts_there_is_no_button() -> None:
    shown = findings_html([make.finding()])

    assert shown.count("<button") == shown.count('<button type="button" hidden onclick=') == 1
    assert "@media (scripting: enabled) { .icekit.icekit .sql button[hidden] { display: block; } }" in shown


def test_copying_needs_no_script_of_the_page_which_a_widget_does_not_run() -> None:
    assert "<script" not in findings_html([make.finding()])
    assert "<button" not in findings_html([make.finding(sql=())])


def test_everything_is_escaped() -> None:
    evil = "<script>alert(1)</script>"
    told: dict[str, Any] = dict.fromkeys(("table", "evidence", "threshold", "source", "effect", "remedy"), evil)

    shown = findings_html([make.finding(evil, where=(evil,), sql=(), **told)])

    assert "<script" not in shown
    assert shown.count("&lt;script&gt;") == 7


def test_statements_are_escaped() -> None:
    assert "<pre>SELECT &#x27;&lt;b&gt;&#x27;</pre>" in findings_html([make.finding(sql=("SELECT '<b>'",))])


def test_partitions_beyond_those_named_are_counted() -> None:
    assert "and 1,990 more" in findings_html([make.finding(where=("p",) * 10, where_count=2000)])


def test_figures_stay_on_a_line_with_their_units() -> None:
    assert "12\N{NO-BREAK SPACE}% of 3.5\N{NO-BREAK SPACE}GiB in 4 files" in findings_html(
        [make.finding(evidence="12 % of 3.5 GiB in 4 files")]
    )


def test_findings_are_summed_up_by_severity() -> None:
    found = [make.finding(severity=Severity.CRITICAL), make.finding(), make.finding(), make.finding(severity=Severity.INFO)]

    assert summary(found) == "4 findings: 1 critical, 2 warnings, 1 info"


def test_findings_display_themselves() -> None:
    assert "small files" in Findings([make.finding()])._repr_html_()
