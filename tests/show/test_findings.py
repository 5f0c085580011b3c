import re
from typing import Any

from icekit.health.diagnose.findings import Findings, Severity, findings_html
from tests.factories import finding
from tests.golden import Golden


def test_a_finding_that_another_action_fixes_shows_no_second_rewrite() -> None:
    shown = findings_html(
        [
            finding(name, sql=(f"SELECT '{name}'",))
            for name in (
                *("small_files", "position_deletes", "equality_deletes"),
                *("overlapping_manifests", "fragmented_manifests"),
            )
        ]
    )

    assert re.findall(r"<pre>SELECT &#\w+;(\w+)", shown) == [
        "equality_deletes",
        "fragmented_manifests",
    ]


def test_without_scripts_there_is_no_button() -> None:
    shown = findings_html([finding()])

    assert shown.count("<button") == shown.count('<button type="button" hidden onclick=') == 1
    # Scripts of a page do not run in a widget.
    assert "<script" not in shown
    assert "<button" not in findings_html([finding(sql=())])
    assert (
        "@media (scripting: enabled) { .icekit.icekit .sql button[hidden] { display: block; } }"
        in shown
    )


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


def test_findings_look_like_their_golden_files(golden: Golden) -> None:
    several = Findings(
        [
            finding("old_partition_spec", Severity.CRITICAL, sql=("SELECT 1", "SELECT '<b>'")),
            finding(where=("p",) * 10, where_count=2000),
            finding("executor_cache", Severity.INFO, sql=(), where=()),
        ]
    )

    golden("findings/none.html", findings_html(Findings()))
    saves = {"": "Together, they save 3.", "small_files": "Saves 3."}
    golden("findings/several.html", findings_html(several, saves))
    assert several._repr_html_() == findings_html(several)
