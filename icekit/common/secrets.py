"""Keep secrets out of everything that is shown or saved.

Text from outside (errors, logs, answers of servers) goes through :func:`scrub`, which also masks
what only looks like a secret. icekit's own sentences, SQL, paths and people's data go through
:func:`mask`: it masks remembered secrets, and texts that can only be secrets.
"""

import contextlib
import html
import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, TextIO
from urllib.parse import quote, quote_plus, unquote

MASK = "***"

#: The words by which pyiceberg, Iceberg and the clouds name what must not be seen; the regular
# expression is one to Java too.
SECRET_KEY = (
    r"(?i)secret|token|passw|passphrase|pwd|credential|access[-._]?key|account[-._]?key|api[-._]?key|private[-._]?key"
    r"|(?:en|de)cryption[-._]key|sse\.key|sas[-._]|header\.|connection[-._]string|^auth|\.auth\.|authorization"
)
_SECRET_KEY = re.compile(SECRET_KEY)
# Keys that hold such a word and say where, how or how long, not what.
_NO_SECRET = re.compile(
    r"([-.](uri|url|enabled|expires-at|ms|seconds|endpoint|provider|key[-.]id)|[._-]type)$", re.I
)
_LazyPattern = Callable[[], re.Pattern[str]]


def _lazy_pattern(pattern: str, flags: int = 0) -> _LazyPattern:
    """A pattern that is compiled when it is used first: many commands use none."""
    return cache(lambda: re.compile(pattern, flags))


_URI_PASSWORD = _lazy_pattern(
    r"""(?P<before>(?<=://)[^/\s:@?#"'<>\\]*:)(?P<v>[^/\s?#"'<>\\]+)(?P<after>@)"""
)
# As SQLAlchemy reads a URI: a password ends with the first @ and may hold a slash.
_SQL_PASSWORD = _lazy_pattern(r"(?<!http)(?<!https)://[^/\s:@]*:(?P<v>[^\s@]+)@")
# A value of a profile that is no URI, but was meant to be one: a client repeats it as a whole.
_MEANT_PASSWORD = _lazy_pattern(r"(?:^|//)[^/\s:@]*:(?!//)(?P<v>[^\s@]+)@")
# Where a secret is to be put, by a name of the environment: ${NAME}, whose bracket may end the
# value, or $NAME.
_PLACEHOLDER = re.compile(r"(?:[A-Za-z][\w-]*(?:[ +]|%20)+)?\$(?:\{\w+\}?|[A-Z_][A-Z0-9_]*)")
# Masking a common word would mangle every text that has it; headers are often just words.
_SHORTEST = 4
_SHORTEST_HEADER = 8
_SHORTEST_LINE = 16
_COMMON = frozenset({"true", "false", "none", "null", "http", "https", "bearer", "basic"})
_known_secrets: set[str] = set()

# How texts quote: as they are, inside other JSON, and in HTML.
_Q = r"""(?:\\{0,7}["']|&quot;|&#34;|&#39;|&#x27;|&apos;)"""
# A value goes on to what closes it in running text, JSON, HTML or a URL; bounded, so that no text
# takes long.
_END = r"""\s"'<>\\,;)\]}"""
_VALUE = rf"(?:[^{_END}&]|&(?!quot;|#|lt;|gt;|amp;|apos;))"
_WORDS = (
    r"(?:token|secret|passw(?:or)?d|pwd|credentials?|signature|authorization|cookie"
    r"|(?:access|account|api|private|shared|secret)[-_. ]?(?:access[-_]?)?(?:api[-_]?)?key)"
)
_NAME = rf"[\w.\-]{{0,60}}?{_WORDS}[\w.\-]{{0,60}}"
_PROSE = (
    r"(?!(?:tokens?|realm|scheme|errors?|auth\w*|credentials?|challenge|is|was|of|or|and|not)\b)"
)


def _masked_text(match: re.Match[str]) -> str:
    named_groups = match.groupdict()
    if not named_groups:  # a map, as Java writes it
        return _IN_MAP().sub(_masked_text, match[0])
    if _PLACEHOLDER.fullmatch(match["v"]) or _NO_SECRET.search(named_groups.get("key") or ""):
        return match[0]
    return f"{named_groups.get('before') or ''}{MASK}{named_groups.get('after') or ''}"


_IN_MAP = _lazy_pattern(rf"(?P<before>(?<=[{{ ])(?P<key>{_NAME})=)(?P<v>[^,}}]+)", re.I)
_Patterns = tuple[tuple[tuple[str, ...], _LazyPattern], ...]
# What gives a secret away where it was never remembered (a token that a server handed out and an
# error repeats): words one of which is in a text that has it, in lower case, and the pattern. First
# what cannot be taken for anything else.
_EVIDENT: _Patterns = (
    (
        ("private key",),
        _lazy_pattern(
            r"(?P<v>-----BEGIN [A-Z ]*PRIVATE "
            r"KEY-----(?:[A-Za-z0-9+/=\s:,]|-(?!----)|\\{1,7}[nr]|&#1[03];)*(?:-----END [A-Z "
            r"]*PRIVATE KEY-----)?)"
        ),
    ),
    (("eyj",), _lazy_pattern(r"\b(?P<v>eyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?)")),
    (
        ("bearer",),
        _lazy_pattern(
            rf"(?P<before>\bbearer(?:[ ]|%20|\+)+)(?P<v>(?=[A-Za-z._~+/=-]*\d){_VALUE}{{16,}})",
            re.I,
        ),
    ),
    # Presigned URLs of the clouds, and their connection strings.
    (
        ("x-amz-", "x-goog-", "sig", "accountkey", "sharedaccess"),
        _lazy_pattern(
            rf"(?P<before>(?:[?&;]|%26|%3f)(?:X-(?:Amz|Goog)-(?:Signature|Credential|Security-Token)|sig(?=(?:=|%3d){_VALUE}{{16}})"
            rf"|AccountKey|SharedAccessKey|SharedAccessSignature)(?:=|%3d))(?P<v>[^{_END}&%]+(?:%(?!26)[^{_END}&%]*)*)",
            re.I,
        ),
    ),
    # An account and its password, or a key alone; abfss://container@account is no such thing.
    (("://",), _URI_PASSWORD),
    (
        ("http",),
        _lazy_pattern(r"""(?P<before>https?://)(?P<v>[^/\s:@?#"'<>\\]+)(?P<after>@)""", re.I),
    ),
)
# Then what has the form of one, as many a column, folder and value of people's data has.
_LOOKALIKES: _Patterns = (
    # {"access_token": "…"}, as JSON, Python and HTML write it.
    (
        (
            "token",
            "secret",
            "passw",
            "pwd",
            "credential",
            "key",
            "authorization",
            "signature",
            "cookie",
        ),
        _lazy_pattern(
            rf"(?P<before>(?P<k>{_Q})(?P<key>{_NAME})(?P=k)\s*:\s*(?P<q>{_Q}))(?P<v>(?:(?!(?P=q))(?:\\.|[^\\])){{1,20000}})(?P<after>(?P=q))",
            re.I | re.S,
        ),
    ),
    # {token=…, uri=…}, as Java writes a map.
    (("{",), _lazy_pattern(r"\{[^{}\n]{1,20000}\}")),
    (
        ("authorization", "x-", "cookie"),
        _lazy_pattern(
            rf"(?<![\w/-])(?P<before>(?:(?:proxy-)?authorization|x-[\w-]{{0,40}}(?:token|key|secret|signature|credential)|(?:set-)?cookie)"
            rf"{_Q}?\s*(?:[:=]|%3d)\s*\[?{_Q}?)(?P<v>(?:AWS4|Digest|OAuth|Hawk)\b[^\n<]*|(?:[A-Za-z][\w-]*[ "
            rf"]+)?{_VALUE}+)",
            re.I,
        ),
    ),
    (
        ("bearer",),
        _lazy_pattern(rf"(?P<before>\bbearer(?:[ ]|%20|\+)+){_PROSE}(?P<v>{_VALUE}+)", re.I),
    ),
    # "Basic" is also a word: what follows must look like base64.
    (
        ("basic ",),
        _lazy_pattern(
            r"(?P<before>\b[Bb]asic "
            r"+)(?P<v>(?=[A-Za-z0-9+/]*(?:[0-9=+/]|[a-z][A-Z]))[A-Za-z0-9+/]{8,}={0,2})"
        ),
    ),
    (("aws4-hmac",), _lazy_pattern(rf"(?P<before>\b(?:Signature|Credential)=)(?P<v>{_VALUE}+)")),
    # Query strings, forms and connection strings: presigned URLs, SAS, JDBC.
    (
        ("=", "%3d"),
        _lazy_pattern(
            rf"(?P<before>(?:[?&;]|%26)(?:[\w.\-]{{0,40}}?{_WORDS}|sig)(?:=|%3d))(?P<v>[^{_END}&%]+(?:%(?!26)[^{_END}&%]*)*)",
            re.I,
        ),
    ),
    (
        ("sig=", "_token=", "_secret=", "accountkey=", "sharedaccess"),
        _lazy_pattern(
            rf"(?P<before>(?<![\w.-])(?:client_secret|(?:access|refresh|id|subject)_token|AccountKey|SharedAccessKey|SharedAccessSignature)="
            rf"|(?<![\w.-])sig=(?={_VALUE}{{16}}))(?P<v>{_VALUE}+)",
            re.I,
        ),
    ),
    # "invalid token eyJ…": long, and no word.
    (
        ("token", "secret", "password", "credential"),
        _lazy_pattern(
            r"""(?P<before>\b(?:token|secret|password|credential)\b["'`\s:=(]{1,4})(?P<v>(?=[A-Za-z_.~+/=-]*\d)[A-Za-z0-9._~+/=-]{16,})""",
            re.I,
        ),
    ),
)
# A PNG in base64: most of a page, and nothing to read in it.
_PICTURE = re.compile(r"(iVBORw0KGgo[A-Za-z0-9+/=]{1000,})")


def is_secret(key: str) -> bool:
    """Whether the value of a configuration key must never be shown."""
    return bool(_SECRET_KEY.search(key)) and not _NO_SECRET.search(key)


def is_sensitive(key: str, value: str) -> bool:
    """Whether a setting must stay out of logs and command lines: because of its name, its value, or
    as a secret's other half.
    """
    return is_secret(key) or "access-key" in key or scrub(value) != value


def remember_secrets(properties: Mapping[str, str]) -> None:
    """Remember the secret values of a profile, so that :func:`scrub` can mask them."""
    for key, value in properties.items():
        if is_secret(key):
            is_header = "header." in key
            # Client credentials are "id:secret"; the secret alone gives them away, as does what
            # follows "Bearer".
            secret_parts = [
                value,
                *(value.split(":", 1)[1:] if key.endswith("credential") else []),
                *(value.split()[1:] if is_header else []),
            ]
            for secret_part in secret_parts:
                is_long_enough = len(secret_part) >= (_SHORTEST_HEADER if is_header else _SHORTEST)
                if (
                    is_long_enough
                    and secret_part.lower() not in _COMMON
                    and not _PLACEHOLDER.fullmatch(secret_part)
                ):
                    _remember_secret(secret_part)
            for line in value.splitlines()[1:] and value.splitlines():
                if len(line) >= _SHORTEST_LINE and not line.startswith("-----"):
                    _remember_secret(line)
        password_patterns = (_URI_PASSWORD(), _SQL_PASSWORD(), _MEANT_PASSWORD())
        for match in (
            match
            for password_pattern in password_patterns
            for match in password_pattern.finditer(value)
        ):
            if not _PLACEHOLDER.fullmatch(match["v"]):
                _remember_secret(match["v"])


def _remember_secret(secret: str) -> None:
    """Remember a value as it is, and in the spellings of URLs, JSON, XML and HTML."""
    for spelling in (secret, unquote(secret)):
        html_escaped = html.escape(spelling)
        _known_secrets.update(
            (
                spelling,
                json.dumps(spelling)[1:-1],
                json.dumps(spelling, ensure_ascii=False)[1:-1],
                repr(spelling)[1:-1],
                html_escaped,
                html.escape(spelling, quote=False),
                # As templates spell quotes.
                html_escaped.replace("&#x27;", "&#39;").replace("&quot;", "&#34;"),
                quote(spelling),
                quote(spelling, safe=""),
                quote_plus(spelling),
            )
        )


def scrub(text: str) -> str:
    """Text from outside, with ``***`` for every remembered secret and for what looks like one.

    These are tokens and authorization headers, signatures of presigned URLs, secrets named in JSON,
    query strings and connection strings, accounts inside URIs, and private keys. A ``${NAME}`` in
    place of a secret is kept.
    """
    return _without_secrets(text, (*_EVIDENT, *_LOOKALIKES))


def mask(text: str) -> str:
    """Text of icekit's own, including people's names, SQL and data, with ``***`` for remembered
    secrets and for texts that can only be secrets.

    A person's column ``cookie``, folder ``token=abc`` or filter on ``secret`` is kept. Scrub text
    from outside with :func:`scrub` before adding it to such a text.
    """
    return _without_secrets(text, _EVIDENT)


# YAML quotes its own words (such as '<block end>') and single characters, and what a person wrote
# as a name of an anchor or tag.
_QUOTED = re.compile(r"""(['"])((?:\\.|(?!\1).)+)\1""")
_OF_YAML = re.compile(r"<[a-z ]+>|\\?.|\\[xuU][0-9a-f]+")


def without_yaml_quotes(message: str) -> str:
    """What is wrong with a YAML file, without the words that are quoted from it: a secret may begin
    with ``*``, ``&`` or ``!``.
    """
    return _QUOTED.sub(lambda quoted: quoted[0] if _OF_YAML.fullmatch(quoted[2]) else "…", message)


def _without_secrets(text: str, patterns: _Patterns) -> str:
    for secret in sorted(_known_secrets, key=len, reverse=True):
        text = text.replace(secret, MASK)
    text_pieces = _PICTURE.split(text)
    # Every other one is a picture.
    text_pieces[::2] = (_without_matches(text_piece, patterns) for text_piece in text_pieces[::2])
    return "".join(text_pieces)


def _without_matches(text: str, patterns: _Patterns) -> str:
    lower_text = text.lower()
    for trigger_words, pattern in patterns:
        if any(trigger_word in lower_text for trigger_word in trigger_words):
            text = pattern().sub(_masked_text, text)
    return text


def mask_data(value: Any) -> Any:
    """:func:`mask` every text inside plain data; keeps its shape and its numbers."""
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, Mapping):
        return {key: mask_data(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [mask_data(item) for item in value]
    return value


class _MaskingStream:
    """A stream that masks secrets in what is written to it."""

    def __init__(self, stream: TextIO, clean: Callable[[str], str] = scrub) -> None:
        self._stream = stream
        self._clean = clean

    def write(self, text: str) -> int:
        self._stream.write(self._clean(text))
        return len(text)

    def writelines(self, lines: Iterator[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def own_text_stream(stream: TextIO) -> TextIO:
    """The stream for icekit's own text; other programs' output and logs count as text from
    outside.
    """
    text_stream: Any = (
        _MaskingStream(stream._stream, mask) if isinstance(stream, _MaskingStream) else stream
    )
    return text_stream  # type: ignore[no-any-return]


@contextlib.contextmanager
def scrubbed_output() -> Iterator[None]:
    """Mask secrets in everything printed, warned or logged to the terminal in the block; a closed
    stream stays closed.
    """
    import sys

    out: Any = sys.stdout and _MaskingStream(sys.stdout)
    err: Any = sys.stderr and _MaskingStream(sys.stderr)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        yield
