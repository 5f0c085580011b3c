"""A pass says once that the status of a table has changed."""

from pathlib import Path

from icekit.common.errors import Status
from icekit.common.saving import write_json
from icekit.report.schedule.result import PassResult, TableResult, news
from tests.report.schedule.lakes import NOW


def told(folder: Path, *statuses: Status) -> str | None:
    """What a pass with these statuses says; leaves its pass.json."""
    tables = [TableResult(f"db.t{n}", "all", status) for n, status in enumerate(statuses)]
    one = PassResult("nightly", "prod", NOW, tables=tables)
    one.news = news(one, folder / "pass.json")
    write_json(folder / "pass.json", one)
    text: str | None = one.news["text"]
    return text


def test_a_change_of_status_is_news_once(tmp_path: Path) -> None:
    assert told(tmp_path, Status.DONE, Status.NOTHING) is None
    said = told(tmp_path, Status.FAILED, Status.DONE)
    assert said is not None
    assert said.startswith("icekit nightly: 1 of 2 tables changed their status\n")
    assert "db.t0" in said
    assert told(tmp_path, Status.FAILED, Status.DONE) is None
    # What only one pass has come to is no news.
    assert told(tmp_path, Status.WAITS, Status.BUSY) is None
    assert "db.t0" in str(told(tmp_path, Status.NOTHING, Status.PLANNED))
