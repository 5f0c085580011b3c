"""Send messages by Apprise; a receiver that cannot be told does not keep the others from it."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Mapping
from urllib.parse import quote

from icekit import secrets
from icekit.errors import ParameterError
from icekit.extras import require
from icekit.schedule.alerts import Message
from icekit.schedule.model import Policy
from icekit.secrets import mask, scrub

_TELLING = "A policy with `notify`"
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def urls(policy: Policy, environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Each receiver's URL with its secrets in place; they are masked in all that is shown or saved from now on.

    Raises :class:`~icekit.errors.ParameterError` for variables that are not set, all of them at once, and for a
    URL that Apprise does not know.
    """
    given = os.environ if environment is None else environment
    missing = sorted({name for one in policy.notify for name in _VARIABLE.findall(one.to) if not given.get(name)})
    if missing:
        raise ParameterError(
            f"The environment has no {', '.join(missing)}, which {policy.name}'s notify asks for; set what is missing, or take the receiver out."
        )
    found = {}
    for one in policy.notify:
        for name in _VARIABLE.findall(one.to):
            secrets.remember({"password": given[name]})
            secrets.remember({"password": quote(given[name], safe="")})
        # A URL that is a secret as a whole is taken as it is; a part of one is quoted, as it may hold any sign.
        whole = _VARIABLE.fullmatch(one.to)
        found[one.name] = given[whole[1]] if whole else _VARIABLE.sub(lambda m: quote(given[m[1]], safe=""), one.to)
    _known(found)
    return found


def check_receivers(policy: Policy, environment: Mapping[str, str] | None = None) -> list[str]:
    """Check each receiver's address as far as it is known here; a sentence for each that needs a variable which is not set.

    A check may run where the secrets are not. Raises :class:`~icekit.errors.ParameterError` as :func:`urls` does.
    """
    given = os.environ if environment is None else environment
    unknown = {one.name: [n for n in _VARIABLE.findall(one.to) if not given.get(n)] for one in policy.notify}
    urls(policy.model_copy(update={"notify": tuple(one for one in policy.notify if not unknown[one.name])}), environment)
    for one in policy.notify:
        scheme, _, rest = one.to.partition("://")
        if unknown[one.name] and "$" not in scheme and not (rest and _is_service(scheme)):
            raise _no_address(one.name, scheme if rest else "?")
    return [
        f"{name}'s address was not checked: {', '.join(names)} {'is' if len(names) == 1 else 'are'} not set here."
        for name, names in unknown.items()
        if names
    ]


def send(messages: Iterable[Message], to: Mapping[str, str]) -> dict[str, str | None]:
    """Send every message; returns, per receiver, None or why it was not told."""
    return {message.receiver: _sent(message, to[message.receiver]) for message in messages if message.title}


def _known(found: Mapping[str, str]) -> None:
    if not found:
        return
    require("apprise", _TELLING)
    from apprise import Apprise

    with _Listening():
        for name, url in found.items():
            if Apprise.instantiate(url) is None:
                raise _no_address(name, url.partition("://")[0] if "://" in url else "?")


def _no_address(name: str, scheme: str) -> ParameterError:
    return ParameterError(
        f"Receiver {name} has an address that Apprise cannot use (it begins with {scrub(scheme)}://); see https://github.com/caronc/apprise/wiki for the form of each service."
    )


def _is_service(scheme: str) -> bool:
    require("apprise", _TELLING)
    from apprise import Apprise

    return any(scheme.lower() in [*(one["protocols"] or ()), *(one["secure_protocols"] or ())] for one in Apprise().details()["schemas"])


def _sent(message: Message, url: str) -> str | None:
    from apprise import Apprise, NotifyFormat, NotifyType

    with _Listening() as heard:
        try:
            receiver = Apprise.instantiate(url)
            kind = NotifyType.FAILURE if message.is_grave else NotifyType.SUCCESS
            done = receiver is not None and receiver.notify(
                body=mask(message.body), title=mask(message.title), notify_type=kind, body_format=NotifyFormat.TEXT
            )
        except Exception as error:
            done, said = False, f"{type(error).__name__}: {error}"
        else:
            said = heard.said() or "it refused, and Apprise does not say why"
    return None if done else scrub(said)


class _Listening(logging.Handler):
    """Hears what Apprise logs, which is where it says why, and keeps it off the terminal."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._log = logging.getLogger("apprise")
        self._heard: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING:
            self._heard.append(record.getMessage())

    def said(self) -> str:
        """What it heard, in one line; half a secret would not be known for one."""
        return scrub("; ".join(" ".join(one.split()) for one in self._heard))[:300]

    def __enter__(self) -> _Listening:
        self._before = (self._log.propagate, self._log.level)
        # Apprise says at DEBUG level why a connection was refused, with the address in it, which is scrubbed.
        self._log.propagate = False
        self._log.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._log.removeHandler(self)
        self._log.propagate, level = self._before
        self._log.setLevel(level)
