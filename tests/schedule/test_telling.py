"""Messages reach real receivers over HTTP and SMTP, and one that fails keeps no other from it."""

from __future__ import annotations

import asyncio
import http.server
import json
import re
import socket
import threading
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.controller import Controller

from icekit.errors import ParameterError
from icekit.schedule.alerts import Message, send, urls
from icekit.schedule.one_pass import tell
from icekit.schedule.state import State
from tests.schedule.making import health, made, policy, result

SECRET = "hunter2/with?odd&signs"
GRAVE = result(health=health(), fail_on="critical")


class Web:
    """A server on this machine that keeps what it is sent."""

    def __init__(self, status: int = 200) -> None:
        self.got: list[tuple[str, dict[str, str], Any]] = []
        web = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                web.got.append((self.path, dict(self.headers), json.loads(body)))
                self.send_response(status)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Keep quiet."""

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.at = f"127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=[0.02], daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


class Listening(Controller):
    """A mail server on a socket that is open already: nobody else takes its port."""

    def __init__(self, handler: Post, listening: socket.socket) -> None:
        self.listening = listening
        super().__init__(handler, hostname="127.0.0.1", port=listening.getsockname()[1], ready_timeout=120)

    def _create_server(self) -> Coroutine[Any, Any, asyncio.Server]:
        return self.loop.create_server(self._factory_invoker, sock=self.listening)


class Post:
    """Keeps the mails that reach it."""

    def __init__(self) -> None:
        self.mails: list[Any] = []

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:  # noqa: N802
        self.mails.append(envelope)
        return "250 OK"


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


@pytest.fixture
def post() -> Iterator[tuple[Post, int]]:
    handler = Post()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        controller = Listening(handler, listening)
        controller.start()
        yield handler, controller.port
        controller.stop()


#: Seconds for a receiver to answer, however busy this machine is; Apprise gives it four.
PATIENT = "cto=60&rto=60"


def notify(*addresses: str) -> str:
    return "notify:\n" + "".join(f"  - name: r{n}\n    to: {to}\n" for n, to in enumerate(addresses))


def test_a_webhook_and_a_mailbox_get_the_message_and_it_is_told_once(web: Web, post: tuple[Post, int], tmp_path: Path) -> None:
    mailbox, port = post
    by = policy(
        notify(
            f"json://user:${{TOKEN}}@{web.at}/hook?{PATIENT}",
            f"mailto://127.0.0.1:{port}?from=icekit@example.com&to=team@example.com&mode=insecure&{PATIENT}",
        )
    )
    to, state = urls(by, {"TOKEN": SECRET}), State(tmp_path / "s.db")

    first = tell(made(GRAVE), by, state, to)
    assert (first.told, first.alert_problems) == (("r0", "r1"), ())
    [(path, headers, said)] = web.got
    assert (path, said["type"], said["title"]) == ("/hook", "failure", "icekit nightly: 1 unhealthy")
    assert "db.t: critical: small_files" in said["message"]
    assert "Authorization" in headers
    [mail] = mailbox.mails
    assert mail.rcpt_tos == ["team@example.com"]
    assert b"Subject: icekit nightly: 1 unhealthy" in mail.content
    assert b"small_files" in mail.content

    again = tell(made(GRAVE), by, state, to)
    assert (again.told, len(web.got), len(mailbox.mails)) == ((), 1, 1)


def test_a_receiver_that_fails_is_told_of_and_tried_again_and_the_others_are_told(web: Web, broken: Web, tmp_path: Path) -> None:
    by = policy(notify(f"json://{broken.at}?{PATIENT}", "json://127.0.0.1:9/closed", f"json://{web.at}?{PATIENT}"))
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
    by = policy(notify(f"json://user:${{TOKEN}}@{broken.at}/${{TOKEN}}?{PATIENT}"))
    to = urls(by, {"TOKEN": SECRET})
    message = Message("r0", "t", f"the body names {SECRET}", True, {})

    answer = send([message], to)["r0"]
    assert answer is not None
    assert "hunter2" not in answer
    assert "hunter2" not in json.dumps(broken.got[0][2])
    assert broken.got[0][0].startswith("/hunter2")  # it did go where it should


def test_a_secret_that_the_policy_has_in_plain_text_is_in_no_message(broken: Web) -> None:
    by = policy(notify(f"json://me:hunter2@{broken.at}/T0K3N/h%75nter3?{PATIENT}", "json://127.0.0.1:9/T0K3N"))

    answers = send([Message(f"r{n}", "title", "body", True, {}) for n in (0, 1)], urls(by, {}))
    assert all(answers.values())
    assert not re.search(r"hunter\d|T0K3N|127\.0\.0\.1", repr(answers), re.I), answers


def test_every_variable_that_is_missing_is_named_at_once() -> None:
    with pytest.raises(ParameterError, match="missing for notify in policy policy: A_TOKEN, B_TOKEN"):
        urls(policy(notify("json://${B_TOKEN}@h", "${A_TOKEN}")), {"OTHER": "1"})


def test_an_address_that_no_service_has_is_refused_before_anything_runs() -> None:
    for address, said in (("slakc://T0K3N", r"; did you mean slack\?"), ("T0K3N/x://slack", r"\."), ("slack://T0K3N", r" as slack://\.")):
        with pytest.raises(ParameterError, match=rf"Receiver r0 has an address that Apprise cannot use{said} See") as refused:
            urls(policy(notify(address)), {})
        assert "T0K3N" not in str(refused.value)
