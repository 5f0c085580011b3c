"""Remember what is secret and keep it out of everything that is shown or saved."""

from __future__ import annotations

import re
from collections.abc import Mapping

MASK = "***"

# The words by which pyiceberg, Iceberg and the clouds name what must not be seen.
_SECRET_KEY = re.compile(r"secret|token|password|credential|access-key|account-key|sas|header\.|connection-string|auth", re.I)
_URI_PASSWORD = re.compile(r"(?<=://)([^/\s:@]*):([^/\s@]+)@")
_known: set[str] = set()


def is_secret(key: str) -> bool:
    """Tell whether the value of a configuration key must never be shown."""
    return bool(_SECRET_KEY.search(key))


def remember(properties: Mapping[str, str]) -> None:
    """Note the secret values of a profile, so that :func:`scrub` can take them out."""
    for key, value in properties.items():
        if is_secret(key):
            # client-credentials are "id:secret"; either half alone gives it away.
            _known.update(part for part in (value, *value.split(":", 1)) if len(part) >= 4)
        _known.update(match[2] for match in _URI_PASSWORD.finditer(value))


def scrub(text: str) -> str:
    """Replace every remembered secret, and any password inside a URI, by ``***``."""
    for value in sorted(_known, key=len, reverse=True):
        text = text.replace(value, MASK)
    return _URI_PASSWORD.sub(rf"\1:{MASK}@", text)
