"""``icekit plan``: what is worth doing, of all kinds, with what it wins and costs and the command
that does it.
"""

import json
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

import icekit
from icekit.api import Lake
from icekit.cli.main import main
from icekit.common.commands.compaction_policy import CompactionPolicy
from icekit.common.errors import ParameterError, Status
from icekit.common.saving import as_data
from icekit.health.diagnose import SYMPTOMS
from icekit.health.diagnose.findings import COMPACTED, MAINTAINED, Finding, Findings, Severity
from icekit.maintain import policy
from icekit.maintain.planning import selection
from icekit.maintain.planning.proposals import (
    TUNED,
    ByHand,
    Proposal,
    Proposals,
    _tune_proposals,
    propose,
    verdict,
)
from icekit.maintain.record.ledger import Ledger
from icekit.maintain.record.results import Actual
from icekit.tune import QUESTIONS
from tests import factories as make
from tests.commands import parsed
from tests.golden import Golden
from tests.maintain.records import ACTION
from tests.maintain.tables import Named
from tests.offline import IDS, lake_in

COMPACT = Proposal(
    "compact",
    ("small_files",),
    "88 of 100 file opens of a full scan",
    "2 MiB to rewrite",
    "icekit compact db.t --trial",
    share=0.5,
)
TUNE = Proposal(
    "tune",
    ("small_files",),
    "measures which setting prevents this",
    "a trial",
    "icekit tune file-sizes db.t",
)


def proposals(*chosen: Proposal, by_hand: Sequence[Finding] = (), **why: Any) -> Proposals:
    return Proposals(
        catalog="lake",
        table="db.t",
        verdict=verdict("db.t", chosen, by_hand, **why),
        file_opens=100,
        delete_rows=0,
        manifests=3,
        proposals=chosen,
        by_hand=tuple(map(ByHand.of, by_hand)),
    )


GRAVE = make.finding("duplicate_files", Severity.CRITICAL)
BY_HAND = make.finding(
    "metadata_files_piling_up", Severity.INFO, remedy="Keep fewer.", sql=("ALTER TABLE x",)
)
SHOWN = {
    "healthy": proposals(is_healthy=True),
    "two": proposals(COMPACT, TUNE),
    "waits": proposals(waits="Skipped 4 partitions, outside the time window."),
    "critical": proposals(COMPACT, by_hand=(GRAVE, BY_HAND)),
    "by-hand": proposals(by_hand=(BY_HAND,)),
}


@pytest.mark.parametrize("case", SHOWN)
def test_what_is_worth_doing_looks_like_its_golden_files(case: str, golden: Golden) -> None:
    golden(f"proposals/{case}.txt", SHOWN[case].text())
    golden(
        f"proposals/{case}.json",
        json.dumps(as_data(SHOWN[case].document()), indent=2, ensure_ascii=False),
    )


def test_every_question_and_finding_that_is_named_is_one() -> None:
    assert set(TUNED.values()) <= QUESTIONS.keys()
    assert TUNED.keys() | COMPACTED | MAINTAINED.keys() <= SYMPTOMS.keys()


def test_a_healthy_table_is_planned_without_spark(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with lake_in(tmp_path) as catalog:
        catalog.create_table("db.t", IDS)
        lake = icekit.connect()
        assert not lake.propose("db.t").proposals
        assert not lake.spark_is_running
        assert main(["plan", "db.t"]) == 0
    assert capsys.readouterr().out == "db.t is healthy: nothing to do.\n"


def test_the_options_of_a_compaction_hold_for_its_proposal_and_stand_in_its_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with lake_in(tmp_path) as catalog:
        table = catalog.create_table("db.t", IDS)
        for id in range(3):
            table.append(pa.table({"id": [id]}))
        assert main(["plan", "db.t"]) == 0
        assert capsys.readouterr().out == "db.t is healthy: nothing to do.\n"
        assert main(["plan", "db.t", "--min-files", "2", "--threshold", "snapshots=50"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("db.t: 1 action is worthwhile; compact saves most")
    assert "compact: small files" in printed
    assert "2 of 3 file opens of a full scan saved" in printed
    assert "icekit compact db.t --trial --threshold snapshots=50 --min-files 2\n" in printed


def test_python_proposes_with_the_options_of_the_command(tmp_path: Path) -> None:
    with lake_in(tmp_path) as catalog:
        table = catalog.create_table("db.t", IDS)
        for id in range(3):
            table.append(pa.table({"id": [id]}))
        lake = icekit.connect()
        answer = lake.propose(
            "db.t",
            thresholds={"snapshots": 50},
            filter_columns=["id"],
            min_files=2,
            budget="2 files",
            max_action_partitions=7,
        )
        [compact] = lake.propose("db.t", min_files=2, budget="3 files").proposals
        with pytest.raises(ParameterError, match="the ledger has none"):
            lake.propose("db.t", min_files=2, budget="30 minutes", ledger=str(tmp_path / "new.db"))
        ledger = Ledger(tmp_path / "ledger.db")
        actual = Actual(files_in=9, bytes_in=10_000, files_out=1, commits=1)
        done = replace(ACTION, status=Status.DONE, actual=actual, seconds=1.0, ended_ms=1)
        ledger.save_action(done)
        [in_time] = lake.propose("db.t", min_files=2, budget="30 minutes", ledger=ledger).proposals

    assert "larger than the rest of the budget" in answer.text()
    assert not answer.proposals
    assert compact.command == "icekit compact db.t --trial --budget '3 files' --min-files 2"
    assert in_time.file_opens_saved == compact.file_opens_saved == 2
    with pytest.raises(ParameterError, match="scope"):
        lake.propose("db.t", scope="all")  # type: ignore[arg-type]


def test_findings_and_candidates_are_made_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def count_calls(module: ModuleType, name: str) -> None:
        function = getattr(module, name)

        def counted(*arguments: Any, **options: Any) -> Any:
            calls.append(name)
            return function(*arguments, **options)

        monkeypatch.setattr(module, name, counted)

    count_calls(policy, "diagnose")
    count_calls(selection, "candidates")
    with lake_in(tmp_path) as catalog:
        table = catalog.create_table("db.t", IDS)
        for id in range(3):
            table.append(pa.table({"id": [id]}))
        lake = icekit.connect()
        facts = lake.observe("db.t")
        findings = icekit.diagnose(facts)
        propose(lake, facts, findings, policy=CompactionPolicy(min_files=2))
    assert calls == ["diagnose", "candidates"]


@pytest.mark.parametrize(
    ("properties", "options"),
    [
        ({}, ["--filter", "`carrier` = ?", "--filter", "`event_id` = ?"]),
        ({"icekit.filter-columns": "carrier, event_id"}, []),
    ],
)
def test_questions_are_asked_about_the_columns_that_queries_filter_by(
    properties: dict[str, str], options: list[str]
) -> None:
    facts = make.table_facts(filter_columns=("carrier", "event_id"), properties=properties)
    asked = [make.finding(name) for name in ("small_files", "unclustered_filter_columns")]

    commands = [shlex.split(p.command) for p in _tune_proposals(facts, Findings(asked))]

    assert [command[2] for command in commands] == ["file-sizes", "layout"]
    assert [command[command.index("db.events") + 1 :] for command in commands] == [
        ["--catalog", "prod"],
        ["--catalog", "prod", *options],
    ]
    assert parsed(commands[1][1:]).filters == tuple(options[1::2])


@pytest.mark.spark
def test_small_files_are_planned_as_the_printed_command_plans_them(
    named: Named, capsys: pytest.CaptureFixture[str]
) -> None:
    sick = named("sick").create().fill()
    here = sick.snapshot_id()

    # Nothing but appends: no commit can conflict with the rewrite, although the partitions were
    # written a moment ago.
    assert main(["plan", "scratch.sick"]) == 0
    assert "compact" in capsys.readouterr().out.splitlines()[0]

    assert main(["plan", "scratch.sick", "--leave-alone", "2 hours"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "Skipped 2 partitions, written within the time of --leave-alone." in text
    assert "add --leave-alone '0 minutes'" in text

    assert main(["plan", "scratch.sick", "--leave-alone", "0 minutes", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    [compact] = [p for p in document["proposals"] if p["kind"] == "compact"]
    command = shlex.split(compact["command"])
    assert command == shlex.split("icekit compact scratch.sick --trial --leave-alone '0 minutes'")
    # The command is one that the command line takes, and plans the same.
    assert parsed(command[1:]).leave_alone == "0 minutes"
    assert (
        main([*(word for word in command[1:] if word != "--trial"), "--ledger", str(sick.book)])
        == 0
    )
    assert f"a full scan opens {compact['file_opens_saved']} files fewer" in capsys.readouterr().out
    assert sick.snapshot_id() == here
    assert not sick.book.exists()


@pytest.mark.spark
@pytest.mark.lab("equality_deletes")
def test_a_compaction_resolves_equality_deletes_and_a_conversion_those_that_it_leaves_alone(
    lake: Lake,
) -> None:
    compacted, left_alone, fits = (
        lake.propose("lab.equality_deletes", executor=executor, leave_alone=leave_alone)
        for executor, leave_alone in (
            ("8 cores 500m", "0 minutes"),
            ("8 cores 500m", "3650 days"),
            ("2 cores 16g", "3650 days"),
        )
    )

    assert compacted.proposals[0].delete_rows_gone == compacted.delete_rows > 0
    assert [answer.proposals[0].kind for answer in (compacted, left_alone)] == [
        "compact",
        "convert",
    ]
    assert "icekit convert lab.equality_deletes" in left_alone.text()
    assert "icekit convert" not in compacted.text() + fits.text()


@pytest.mark.spark
@pytest.mark.lab("fragmented_manifests")
def test_manifests_are_proposed_with_the_command_that_rewrites_them(lake: Lake) -> None:
    answer = lake.propose("lab.fragmented_manifests", leave_alone="0 minutes")

    [maintain] = [p for p in answer.proposals if p.kind == "maintain"]
    assert "fragmented_manifests" in maintain.findings
    assert 0 < (maintain.manifests_gone or 0) < answer.manifests
    assert f"{answer.manifests:,} manifests → " in maintain.gain
    assert maintain.command == "icekit maintain lab.fragmented_manifests"
