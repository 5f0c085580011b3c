"""Reports run unattended: what they leave, what they refuse, and how they exit."""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from icekit import Thresholds, diagnose, notebook
from icekit.common.commands.observe import DiagnoseOptions
from icekit.common.errors import ParameterError
from icekit.common.saving import as_data, slug
from icekit.common.terminal import is_attended
from icekit.health.diagnose import document
from icekit.health.facts.model import TableFacts
from icekit.notebook import begin
from icekit.report.notebook_file import notebook_path
from icekit.show.explorer import SWITCH
from tests.child import python
from tests.commands import command, refusals
from tests.factories import file_group, partition, table_facts
from tests.golden import Golden
from tests.offline import lake_in

#: A parameters cell.
TAGGED = 'table: str = "db.t"  # namespace.table\nthresholds: dict = {}\nfilter_columns: list = []'


@pytest.fixture(scope="module")
def small_lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A lake without Spark: a table of 6 small files, one that is gone, one with an odd name."""
    path = tmp_path_factory.mktemp("lake")
    rows = pa.table({"id": [1, 2, 3]})
    with lake_in(path) as catalog:
        for name, commits in (("sick", 6), ("fine", 1), ("gone", 1), ("it's <b>odd</b>", 1)):
            table = catalog.create_table(("db", name), rows.schema)
            for _ in range(commits):
                table.append(rows)
            if name == "gone":
                Path(table.metadata_location.removeprefix("file://")).unlink()
        yield path


@pytest.fixture(scope="module")
def run(small_lake: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[int, Path, str]:
    """One report of all four tables: its exit status, its folder, what it printed."""
    output = tmp_path_factory.mktemp("reports")
    done = python(
        "-m", "icekit", "report", "db.*", "nodb.*", "--fail-on", "warning", "--output", output
    )
    return done.returncode, output, done.stdout + done.stderr


@pytest.mark.slow
def test_what_cannot_be_read_or_matches_nothing_takes_no_report_away_and_decides_the_status(
    run: tuple[int, Path, str],
) -> None:
    status, output, printed = run
    unmatched = "No table of catalog 'lake' matches 'nodb.*'; did you mean db.*?"

    assert status == 2, printed
    assert "db.gone: misconfigured" in printed
    assert "metadata.json is missing" in printed
    assert "Traceback" not in printed
    assert {p.stem for p in output.glob("*.html")} >= {"index", "db.sick", "db.fine"}
    assert not (output / "db.gone.html").exists()
    # As the run begins, and with its result.
    lines = printed.splitlines()
    assert [line for line in lines if line.startswith("No table")] == [unmatched] * 2
    assert re.search(r"\[\d/4\] db\.fine: healthy, \d+\.\d s", printed)
    assert re.findall(r"\[(\d)/4\]", printed) == ["1", "2", "3", "4"]
    assert f"HTML  {output / 'index.html'}" in printed


@pytest.mark.slow
def test_the_document_has_a_schema_version_findings_versions_and_facts(
    run: tuple[int, Path, str],
) -> None:
    saved = json.loads((run[1] / "db.sick.json").read_text())

    assert saved["schema_version"] == document.SCHEMA_VERSION
    assert [f["name"] for f in saved["findings"]] == ["small_files"]
    assert saved["findings"][0]["remedy"]
    assert saved["status"] == "warning"
    assert saved["totals"]["data"]["file_count"] == 6
    assert saved["facts"]["snapshot_id"] > 0
    assert {"python", "icekit", "pyiceberg", "pyspark"} <= saved["versions"].keys()
    assert saved["seconds"] > 0


@pytest.mark.slow
def test_pages_open_offline_hide_the_code_escape_names_and_have_safe_file_names(
    run: tuple[int, Path, str],
) -> None:
    page = (run[1] / "db.sick.html").read_text()
    index = (run[1] / "index.html").read_text()
    rows = index.split("<tbody>")[1]
    (odd,) = run[1].glob("*odd*.html")

    assert not re.findall(
        r"<(?:script|link|img|iframe)[^>]+(?:src|href)=[\"'](?:https?:)?//[^\"']+", page
    )
    assert not re.findall(r"@import|url\([\"']?https?:", page)
    assert "data:image/png;base64" in page
    assert "rewrite_data_files" in page
    assert "notebook.begin(" not in page
    assert rows.index("db.gone") < rows.index("db.sick") < rows.index("db.fine")
    assert "<b>odd</b>" not in index
    assert "matches &#39;nodb.*&#39;" in index
    assert re.fullmatch(r"[\w.-]+\.html", odd.name)
    assert slug("db.a b") != slug("db.a_b")


@pytest.mark.soak
def test_plain_papermill_runs_the_notebook_and_its_gate_fails_after_all_is_written(
    small_lake: Path, tmp_path: Path
) -> None:
    given = f"--no-progress-bar -r table db.sick -r output {tmp_path} -r fail_on warning"
    done = python("-m", "papermill", notebook_path(), tmp_path / "out.ipynb", *given.split())

    assert done.returncode == 1
    assert "db.sick is unhealthy according to fail_on=warning: small_files" in done.stderr
    assert json.loads((tmp_path / "db.sick.json").read_text())["status"] == "warning"


REFUSED = """\
look db.sik
look db.sick --ref 12345
look db.sick --threshold snapshot=3
look db.sick --threshold snapshots
look db.sick --collector lokal
look db.sick --filter-columns idd
look sick
look db.gone
look 'db.sick; DROP TABLE db.sick'
report db.sick --fail-on critcal
report nodb.*
report nodb.* none.*"""


def test_each_command_says_what_is_wrong_in_one_sentence_and_writes_nothing(
    small_lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    monkeypatch.chdir(tmp_path)
    shown = refusals(REFUSED).replace(str(small_lake), "/lake")

    golden("refusals/tables.txt", re.sub(r"\w{8}(-\w{4}){3}-\w{12}", "UUID", shown))
    assert list(tmp_path.iterdir()) == []
    for line, listed in (("admin tables", "db.fine"), ("lab --list", "lab.healthy_partitioned")):
        status, printed = command(*line.split())
        assert (status, listed in printed) == (0, True)


@pytest.mark.usefixtures("small_lake")
def test_a_look_shows_a_card_as_wide_as_the_terminal_or_the_document_of_a_report(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    card = command("look", "db.sick")[1]
    read = json.loads(command("look", "db.sick", "--json")[1])

    assert max(map(len, card.splitlines())) <= 80
    assert "small files" in card
    assert (read["table"], read["status"]) == ("db.sick", "warning")
    assert read["findings"][0]["name"] == "small_files"


def test_facts_that_were_saved_are_equal_when_loaded(tmp_path: Path) -> None:
    groups = (file_group(of=partition(1.5, "text", True, None, 7)),)
    facts = table_facts(groups=groups)

    assert document.load_facts(document.save_facts(facts, tmp_path / "facts.json")) == facts
    with pytest.raises(ParameterError, match="holds no facts"):
        document.load_facts(tmp_path / "none.json")


def document_of(facts: TableFacts) -> dict[str, Any]:
    return as_data(document.document(facts, diagnose(facts), Thresholds()))


def test_a_document_of_very_many_partitions_keeps_the_worst_and_counts_the_rest() -> None:
    groups = (
        *(file_group(1, of=partition(day)) for day in range(1500)),
        file_group(*[1] * 9, of=partition(9999)),
    )
    made = document_of(table_facts(groups=groups))

    assert len(made["facts"]["groups"]) == document.MAX_PARTITIONS
    assert made["facts_left_out"]["partitions"] == 501
    assert made["totals"]["data"]["file_count"] == 1509
    assert any(g["partition"]["values"] == [9999] for g in made["facts"]["groups"])


def test_a_document_gives_only_the_length_of_a_property_that_holds_a_document() -> None:
    properties = {"quality.report": "x" * 8_000_000, "owner": "ops"}
    made = document_of(table_facts(properties=properties))

    assert made["facts"]["properties"] == {
        "quality.report": "(8,000,000 characters)",
        "owner": "ops",
    }


def test_secrets_do_not_reach_a_document(tmp_path: Path) -> None:
    from icekit.common import secrets

    secrets.remember_secrets({"s3.secret-access-key": "hunter2hunter2"})
    facts = table_facts(properties={"note": "key=hunter2hunter2"})

    assert (
        "hunter2hunter2"
        not in document.write(facts, diagnose(facts), Thresholds(), tmp_path / "x.json").read_text()
    )


@pytest.mark.usefixtures("by_papermill")
def test_a_parameter_that_the_notebook_does_not_have_is_refused_with_the_nearest() -> None:
    tagged = 'table: str = "db.t"  # namespace.table\nref: str = ""'
    begin({"In": ["", tagged, '# Parameters\nref = "main"']})
    with pytest.raises(ParameterError, match="no parameter 'tabel'; did you mean table"):
        begin({"In": ["", tagged, '# Parameters\ntabel = "db.u"']})
    begin({"In": ["", tagged]})


@pytest.mark.parametrize("has_front_end", [False, True])
def test_nobody_reads_a_plan_in_a_kernel_without_a_front_end(
    has_front_end: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ICEKIT_ATTENDED", "")
    monkeypatch.delenv("ICEKIT_ATTENDED")
    monkeypatch.setattr(notebook, "is_kernel", lambda: True)
    monkeypatch.setattr(notebook, "has_front_end", lambda: has_front_end)

    begin({})

    assert is_attended() is has_front_end
    monkeypatch.setenv("ICEKIT_ATTENDED", "perhaps")
    with pytest.raises(ParameterError, match="ICEKIT_ATTENDED value"):
        is_attended()


@pytest.fixture
def by_papermill(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a run by papermill sets it."""
    monkeypatch.setenv(SWITCH, "on")


def begun(
    notebook: str, given: dict[str, Any], *, papermill: Sequence[str] = (), **how: Any
) -> Any:
    """A notebook's settings, with these values of its parameters; ``papermill`` are those that it
    puts into a cell of its own.
    """
    injected = (
        ["# Parameters\n" + "\n".join(f"{name} = None" for name in papermill)] if papermill else []
    )
    return begin(
        {
            "In": ["", TAGGED, *injected],
            "table": "db.t",
            "filter_columns": [],
            "thresholds": {},
            **given,
        },
        notebook,
        **how,
    )


WRONG_PARAMETERS: list[dict[str, Any]] = [
    {"more": {"storage": "yes"}},
    {"more": {"collector": True}},
    {"filter_columns": {"dest": 1}},
    {"thresholds": "{snapshots: 5}"},
    {"table": ["db.t"]},
    {"more": {"colector": "spark"}},
    {"more": {"table": "db.u"}},
    {"more": "storage"},
]


def test_a_notebook_parameter_of_another_name_or_type_is_refused(golden: Golden) -> None:
    shown = []
    for parameters in WRONG_PARAMETERS:
        with pytest.raises(ParameterError) as refused:
            begun("01_diagnose", parameters)
        shown.append(f"{parameters}\n  {refused.value}")

    golden("refusals/parameters.txt", "\n".join(shown))


@pytest.mark.parametrize(
    ("text", "value"), [("true", True), ("False", False), ("false", False), (True, True)]
)
@pytest.mark.usefixtures("by_papermill")
def test_a_switch_that_papermill_keeps_as_text_is_read(text: object, value: bool) -> None:
    assert begun("01_diagnose", {"storage": text}, papermill=["storage"]).storage is value


@pytest.mark.parametrize("kept", ["", "table: str = 'db.t'\nexecute: bool = False"])
def test_parameters_are_read_in_place_also_where_the_cells_are_not_kept(kept: str) -> None:
    cell: dict[str, Any] = {"In": ["", kept], "table": "lab.a", "execute": "true"}
    settings = begin(cell, "02_compact", lab={"trial": True})

    assert settings.table == "lab.a"
    assert cell["execute"] is settings.execute is True
    assert settings.trial is True


@pytest.mark.usefixtures("by_papermill")
def test_a_rarely_changed_setting_is_papermills_then_mores_then_its_default() -> None:
    given = {
        "more": {"history": "h.db", "collector": "spark"},
        "collector": "local",
        "fail_on": "a variable of somebody's own",
    }
    settings = begun("01_diagnose", given, papermill=["collector"])

    assert settings.collector == "local"
    assert settings.history == "h.db"
    assert settings.storage is False
    assert settings.fail_on == "never"
    assert settings.only("storage", "collector") == {"storage": False, "collector": "local"}


@pytest.mark.parametrize(
    ("given", "minutes"),
    [
        ({"table": "lab.small_files"}, "0 minutes"),
        ({"table": "lab.small_files", "more": {"leave_alone": ""}}, ""),
        ({"table": "lab.small_files", "more": {"leave_alone": "2 hours"}}, "2 hours"),
        ({"table": "lab.small_files", "more": {"catalog": "prod"}}, ""),
        ({"table": "db.lab.small_files"}, ""),
        ({"table": "db.t"}, ""),
    ],
)
def test_what_an_example_is_set_with_reaches_no_other_table_and_nothing_that_was_set(
    given: dict[str, Any], minutes: str
) -> None:
    cell = {"In": ["", "table: str = ''"], **given}

    assert begin(cell, "02_compact", lab={"leave_alone": "0 minutes"}).leave_alone == minutes


def test_settings_are_shown_with_what_each_does() -> None:
    shown = repr(begin({"more": {"history": "h.db"}}, "01_diagnose"))

    for name in DiagnoseOptions.declarations:
        assert name in shown
    assert "orphan files" in shown
