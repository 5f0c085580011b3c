"""The support matrix is written from what pytest writes of its runs."""

import runpy
from pathlib import Path
from typing import Any

MATRIX: dict[str, Any] = runpy.run_path(
    str(Path(__file__).parents[1] / "scripts" / "support-matrix.py")
)
RUN = """<testsuites><testsuite name="pytest" tests="5">
<testcase classname="tests.a" name="test_session" time="1"><properties>
<property name="spark" value="3.5.9"/><property name="iceberg" value="1.12.0"/><property name="python" value="3.11.7"/>
<property name="java" value="17.0.2"/><property name="pyarrow" value="26.0.1"/><property name="pandas" value="3.1.1"/>
<property name="numpy" value="2.4.6"/></properties></testcase>
<testcase classname="tests.a" name="test_rows" time="1"/>
<testcase classname="tests.a" name="test_lost[2]" time="1"><failure message="1 != 2">…</failure></testcase>
<testcase classname="tests.a" name="test_v[1]" time="0"><skipped type="pytest.skip" message="Spark 3.5 has no variants"/></testcase>
<testcase classname="tests.a" name="test_v[2]" time="0"><skipped type="pytest.skip" message="Spark 3.5 has no variants"/></testcase>
</testsuite></testsuites>"""


def test_a_row_says_what_passed_what_failed_and_why_the_rest_was_skipped(tmp_path: Path) -> None:
    (tmp_path / "3.5.xml").write_text(RUN)
    (tmp_path / "3.5.commands").write_text("lab\ncompact --execute\n")

    row = MATRIX["row_of"](tmp_path / "3.5.xml")

    assert row[:6] == [
        "3.5.9",
        "1.12.0",
        "3.11.7",
        "2",
        "1: `test_lost[2]`",
        "2: Spark 3.5 has no variants (2)",
    ]
    assert row[6:] == ["`lab`, `compact --execute`", "17.0.2", "26.0.1, 3.1.1, 2.4.6"]
    assert MATRIX["shortened"]([row]) == [["3.5.9", "1.12.0", "3.11.7", "2", "1", "2"]]
