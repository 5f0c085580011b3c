"""Messages reach real receivers over HTTP, and one that fails keeps no other from it."""

from __future__ import annotations

import http.server
import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from icekit.errors import ParameterError
from icekit.schedule.alerts import Message, send, urls
from icekit.schedule.one_pass import tell
from icekit.schedule.state import State
from tests.schedule.making import health, made, policy, result

SECRET = "hunter2/with?odd&signs"
GRAVE = result(health=health(), fail_on="critical")


class Web:
    """A server on this machine that keeps what it is sent."""

    def __init__(self, status: int = 200, location: str = "") -> None:
        self.got: list[tuple[str, dict[str, str], Any]] = []
        web = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                web.got.append((self.path, dict(self.headers), json.loads(body)))
                self.send_response(status)
                if location:
                    self.send_header("Location", location)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Keep quiet."""

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.at = f"127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=[0.02], daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def web() -> Iterator[Web]:
    server = Web()
    yield server
    server.close()


@pytest.fixture
def broken() -> Iterator[Web]:
    server = Web(status=500)
    yield server
    server.close()


def notify(*addresses: str) -> str:
    return "notify:\n" + "".join(f"  - name: r{n}\n    to: {to}\n" for n, to in enumerate(addresses))


def test_a_webhook_gets_the_message_as_slack_takes_it_and_it_is_told_once(web: Web, tmp_path: Path) -> None:
    by = policy(notify(f"http://{web.at}/hook/${{TOKEN}}"))
    to, state = urls(by, {"TOKEN": SECRET}), State(tmp_path / "s.db")

    first = tell(made(GRAVE), by, state, to)
    assert (first.told, first.alert_problems) == (("r0",), ())
    [(path, headers, said)] = web.got
    assert (path, headers["Content-Type"]) == (f"/hook/{quote(SECRET, safe='')}", "application/json")
    assert list(said) == ["text"]
    assert said["text"].startswith("icekit nightly: 1 unhealthy\ndb.t: critical: small_files")

    again = tell(made(GRAVE), by, state, to)
    assert (again.told, len(web.got)) == ((), 1)


def test_a_receiver_that_fails_is_told_of_and_tried_again_and_the_others_are_told(web: Web, broken: Web, tmp_path: Path) -> None:
    by = policy(notify(f"http://{broken.at}", "http://127.0.0.1:9/closed", f"http://{web.at}"))
    to, state = urls(by, {}), State(tmp_path / "s.db")

    first = tell(made(GRAVE), by, state, to)
    assert first.told == ("r2",)
    assert [problem.split(":")[0] for problem in first.alert_problems] == ["r0 could not be notified", "r1 could not be notified"]
    assert "500" in first.alert_problems[0]
    assert (first.exit_status, len(web.got)) == (1, 1)

    tell(made(GRAVE), by, state, to)
    assert (len(broken.got), len(web.got)) == (2, 1)


def test_an_alert_that_cannot_be_sent_fails_a_pass_that_is_well() -> None:
    assert made(result()).exit_status == 0
    assert made(result(), alert_problems=("r0 could not be notified",)).exit_status == 1


def test_a_secret_of_an_address_is_in_no_answer(broken: Web) -> None:
    by = policy(notify(f"http://{broken.at}/${{TOKEN}}"))
    to = urls(by, {"TOKEN": SECRET})
    message = Message("r0", "t", f"the body names {SECRET}", {})

    answer = send([message], to)["r0"]
    assert answer is not None
    assert "hunter2" not in answer
    assert "hunter2" not in json.dumps(broken.got[0][2])
    assert broken.got[0][0].startswith("/hunter2")  # it did go where it should


def test_a_secret_that_the_policy_has_in_plain_text_is_in_no_message(broken: Web) -> None:
    by = policy(notify(f"http://{broken.at}/T0K3N/h%75nter3", "http://127.0.0.1:9/T0K3N"))

    answers = send([Message(f"r{n}", "title", "body", {}) for n in (0, 1)], urls(by, {}))
    assert all(answers.values())
    assert not re.search(r"hunter\d|T0K3N|127\.0\.0\.1", repr(answers), re.I), answers


def test_every_variable_that_is_missing_is_named_at_once() -> None:
    with pytest.raises(ParameterError, match="missing for notify in policy policy: A_TOKEN, B_TOKEN"):
        urls(policy(notify("http://h/${B_TOKEN}", "${A_TOKEN}")), {"OTHER": "1"})


def test_a_redirected_message_did_not_arrive(web: Web) -> None:
    moved = Web(status=302, location=f"http://{web.at}/elsewhere")

    answer = send([Message("r0", "t", "b", {})], urls(policy(notify(f"http://{moved.at}/hook")), {}))["r0"]
    moved.close()
    assert "302" in str(answer)
    assert web.got == []


@pytest.mark.parametrize(
    "address", ["slack://T0K3N", "T0K3N/x", "https://", "https://me:T0K3N@host/x", "https://host:T0K3N/", "file:///T0K3N"]
)
def test_an_address_that_nothing_can_be_posted_to_is_refused_before_anything_runs(address: str) -> None:
    with pytest.raises(ParameterError, match="Receiver r0 has no address that a message can be posted to") as refused:
        urls(policy(notify(address)), {})
    assert "T0K3N" not in str(refused.value)
