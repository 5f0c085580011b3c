"""A message reaches a real receiver over HTTP once per change of status; one that fails is sent by
the next pass; no address is repeated.
"""

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from icekit.common.errors import ParameterError, Status
from icekit.common.saving import write_json
from icekit.report.schedule.notify import post, tell, url_of
from icekit.report.schedule.result import PassResult, Step, TableResult
from tests.golden import Golden
from tests.report.schedule.lakes import NOW

SECRET = "hunter2/with?odd&signs"


class Web(http.server.ThreadingHTTPServer):
    """A server on this machine that keeps what it is sent, and answers as a test wants it to."""

    status, location = 200, ""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.got: list[tuple[str, dict[str, str], Any]] = []
        self.at = f"127.0.0.1:{self.server_port}"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Web

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append((self.path, dict(self.headers), json.loads(body)))
        self.send_response(self.server.status)
        if self.server.location:
            self.send_header("Location", self.server.location)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Keep quiet."""


@pytest.fixture
def web() -> Iterator[Web]:
    with Web() as server:
        threading.Thread(target=server.serve_forever, args=[0.02], daemon=True).start()
        yield server
        server.shutdown()


def made(*statuses: Status) -> PassResult:
    tables = [
        TableResult(
            f"db.t{n}", "all", status, health="healthy", steps=[Step("compact", status, "10 files")]
        )
        for n, status in enumerate(statuses)
    ]
    result = PassResult("nightly", "prod", NOW, tables=tables)
    result.end(1.0, interrupted=False)
    return result


def told(folder: Path, url: str, *statuses: Status) -> tuple[PassResult, list[str]]:
    """What a pass with these statuses prints about its message; leaves its pass.json."""
    one, said = made(*statuses), list[str]()
    one.news = tell(one, url, folder / "pass.json", said.append)
    write_json(folder / "pass.json", one)
    return one, said


def test_a_change_of_status_is_posted_once_as_slack_takes_it(
    web: Web, tmp_path: Path, golden: Golden
) -> None:
    url = f"http://{web.at}/hook"
    told(tmp_path, url, Status.DONE, Status.NOTHING)
    assert web.got == [], "every table is well"

    for _ in range(2):
        assert told(tmp_path, url, Status.FAILED, Status.DONE)[0].exit_status == 1
    [(path, headers, said)] = web.got
    assert path == "/hook"
    assert headers["Content-Type"] == "application/json"
    golden("schedule/message.json", json.dumps(said, indent=1))

    # What only one pass has come to is no news.
    told(tmp_path, url, Status.WAITS, Status.BUSY)
    assert len(web.got) == 1
    told(tmp_path, url, Status.NOTHING, Status.PLANNED)
    told(tmp_path, url, Status.NOTHING, Status.DONE)
    assert [len(said["tables"]) for _, _, said in web.got] == [1, 1]


def test_a_message_that_fails_changes_no_result_and_is_sent_by_the_next_pass(
    web: Web, tmp_path: Path
) -> None:
    web.status = 500
    for url in (f"http://{web.at}/T0K3N", "http://127.0.0.1:9/closed"):
        one, said = told(tmp_path, url, Status.DONE, Status.UNHEALTHY)
        assert one.exit_status == 1
        assert len(said) == 1
        assert said[0].startswith("not notified: ")
        assert json.loads((tmp_path / "pass.json").read_text())["news"]["error"] in said[0]
        assert "T0K3N" not in said[0]
    assert told(tmp_path, f"http://{web.at}", Status.DONE, Status.NOTHING)[0].exit_status == 0

    web.status, web.got = 200, []
    told(tmp_path, f"http://{web.at}", Status.DONE, Status.UNHEALTHY)
    assert len(web.got) == 1


def test_without_an_address_nothing_is_posted(tmp_path: Path) -> None:
    one, said = told(tmp_path, "", Status.FAILED)
    assert said == []
    assert one.news == {"notified": {"db.t0": "failed"}, "error": None}


def test_a_secret_of_an_address_is_quoted_in_it_and_in_no_message(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", SECRET)
    web.status = 500
    url = url_of(f"http://{web.at}/${{TOKEN}}")
    assert url.endswith(quote(SECRET, safe=""))

    answer = post(url, {"text": f"the body names {SECRET}"})
    assert answer == "the receiver answered with status 500"
    assert post("http://127.0.0.1:9/T0K3N", {"text": "t"}) == "ConnectionRefusedError"
    assert "hunter2" not in json.dumps(web.got[0][2])
    assert web.got[0][0].startswith("/hunter2")  # it did go where it should


def test_an_address_that_is_one_variable_is_used_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK", "https://hooks.example.com/a?b=c")
    assert url_of("${HOOK}") == "https://hooks.example.com/a?b=c"
    assert url_of("") == ""


def test_a_redirected_message_did_not_arrive(web: Web) -> None:
    web.status, web.location = 302, f"http://{web.at}/elsewhere"
    assert "302" in str(post(f"http://{web.at}/hook", {"text": "t"}))
    assert [path for path, *_ in web.got] == ["/hook"]


@pytest.mark.parametrize(
    "address",
    [
        "slack://T0K3N",
        "T0K3N/x",
        "https://",
        "https://me:T0K3N@host/x",
        "https://host:T0K3N/",
        "file:///T0K3N",
    ],
)
def test_an_address_that_nothing_can_be_posted_to_is_refused(address: str) -> None:
    with pytest.raises(
        ParameterError, match="notify is no address that a message can be posted to"
    ) as refused:
        url_of(address)
    assert "T0K3N" not in str(refused.value)
