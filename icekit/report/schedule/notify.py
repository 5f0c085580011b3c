"""Post one JSON message to the address of a policy when the status of a table changes; no part of
the address is ever repeated.
"""

import contextlib
import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from icekit.common import secrets
from icekit.common.errors import ParameterError, Status
from icekit.common.saving import as_json
from icekit.report.schedule.result import PassResult

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_TIMEOUT_SECONDS = 30.0


def unset(address: str) -> list[str]:
    """The environment variables of an address that are not set."""
    return sorted({name for name in _VARIABLE.findall(address) if not os.environ.get(name)})


def url_of(address: str) -> str:
    """The address with its variables in place, which are masked in all output from now on; empty if
    there is none.

    Raises :class:`~icekit.common.errors.ParameterError` for variables that are not set, and for an
    address that cannot be posted to.
    """
    if missing := unset(address):
        raise ParameterError(
            f"Environment variables missing for notify: {', '.join(missing)}. Set them, or remove "
            "notify."
        )
    # An address that is a single variable is used as it is; a variable within one is quoted,
    # because it may contain any character.
    is_whole = _VARIABLE.fullmatch(address)
    for name in _VARIABLE.findall(address):
        value, quoted = os.environ[name], quote(os.environ[name], safe="")
        secrets.remember({"password": value})
        secrets.remember({"password": quoted})
        address = address.replace(f"${{{name}}}", value if is_whole else quoted)
    with contextlib.suppress(ValueError):
        parts = urlsplit(address)
        is_web = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
        if not address or (is_web and "@" not in parts.netloc):
            return address
    raise ParameterError(
        "notify is no address that a message can be posted to. Write https://host/path, without "
        "user:password@."
    )


class _NoRedirect(HTTPRedirectHandler):
    """A POST that is redirected would arrive as a GET without the message; it fails instead."""

    def redirect_request(self, *_: Any) -> None:
        return None


def post(url: str, message: Mapping[str, Any]) -> str | None:
    """Post a message, without secrets; returns why that failed, or None."""
    body = as_json(message).encode()
    headers = {"Content-Type": "application/json", "User-Agent": "icekit"}
    try:
        request = Request(url, body, headers, method="POST")
        with build_opener(_NoRedirect).open(request, timeout=_TIMEOUT_SECONDS):
            return None
    except HTTPError as error:
        return f"the receiver answered with status {error.code}"
    except Exception as error:
        # Only its kind: the text may repeat the address, and any part of that may be the secret.
        cause = getattr(error, "reason", error)
        return type(cause if isinstance(cause, Exception) else error).__name__


def tell(result: PassResult, url: str, path: Path, say: Callable[[str], None]) -> dict[str, Any]:
    """Post the tables whose status is another than the one posted last; returns what ``pass.json``
    keeps of that.

    ``notified`` is the status posted last of each table that was not well then; ``path`` is the
    ``pass.json`` of the last pass. A message that cannot be posted (``error`` says why) is left to
    the next pass.
    """
    before: dict[str, str] = {}
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        before = json.loads(path.read_text(encoding="utf-8"))["news"]["notified"]
    # What only this pass has come to is no news.
    now = {
        table.table: str(table.status) if table.status.exit_status else ""
        for table in result.tables
        if table.status not in {Status.STOPPED, Status.BUSY, Status.WAITS}
    }
    changed = {name for name, status in now.items() if status != before.get(name, "")}
    news = [table for table in result.tables if table.table in changed]
    error = None
    if url and news:
        summary = f"{len(news)} of {len(result.tables)} tables changed their status"
        message = {
            "text": "\n".join([f"icekit {result.policy}: {summary}", *map(str, news)]),
            "exit_status": result.exit_status,
            "tables": news,
        }
        error = post(url, message)
        say(f"not notified: {error}" if error else "notified")
    notified = before if error else before | now
    return {"notified": {k: v for k, v in notified.items() if v}, "error": error}
