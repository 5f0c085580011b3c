"""Remember what is secret and keep it out of everything that is shown or saved."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

MASK = "***"

# The words by which pyiceberg, Iceberg and the clouds name what must not be seen.
_SECRET_KEY = re.compile(r"secret|token|password|credential|access-key|account-key|sas-|header\.|connection-string|^auth|\.auth\.", re.I)
# Keys that hold such a word and say where or how, not what.
_NO_SECRET = re.compile(r"(-uri|-url|-enabled|-expires-at|\.type|-endpoint|-key-id)$", re.I)
_URI_PASSWORD = re.compile(r"(?<=://)([^/\s:@]*):([^/\s@]+)@")
# Masking a common word would mangle every text that has it; headers are often just words.
_SHORTEST, _SHORTEST_HEADER = 4, 8
_COMMON = frozenset({"true", "false", "none", "null", "http", "https", "bearer", "basic"})
_known: set[str] = set()


def is_secret(key: str) -> bool:
    """Tell whether the value of a configuration key must never be shown."""
    return bool(_SECRET_KEY.search(key)) and not _NO_SECRET.search(key)


def remember(properties: Mapping[str, str]) -> None:
    """Note the secret values of a profile, so that :func:`scrub` can take them out."""
    for key, value in properties.items():
        if is_secret(key):
            shortest = _SHORTEST_HEADER if key.startswith("header.") else _SHORTEST
            # Client credentials are "id:secret"; the secret alone gives them away.
            halves = value.split(":", 1)[1:] if key.endswith("credential") else []
            for part in (value, *halves):
                if len(part) >= shortest and part.lower() not in _COMMON:
                    _remember_one(part)
        for match in _URI_PASSWORD.finditer(value):
            _remember_one(match[2])


def _remember_one(value: str) -> None:
    """Note a value as it is, and as URLs, JSON and HTML spell it."""
    for plain in (value, unquote(value)):
        _known.update({plain, json.dumps(plain)[1:-1], json.dumps(plain, ensure_ascii=False)[1:-1], html.escape(plain), repr(plain)[1:-1]})


def scrub(text: str) -> str:
    """Replace every remembered secret, and any password inside a URI, by ``***``."""
    for value in sorted(_known, key=len, reverse=True):
        text = text.replace(value, MASK)
    return _URI_PASSWORD.sub(rf"\1:{MASK}@", text)


def scrub_data(value: Any) -> Any:
    """Scrub every text inside plain data; its shape and its numbers stay."""
    if isinstance(value, str):
        return scrub(value)
    if isinstance(value, Mapping):
        return {key: scrub_data(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [scrub_data(item) for item in value]
    return value
