"""What a profile keeps secret is taken out of every text."""

import configparser
import html
import json
import logging
import sys
from collections.abc import Callable
from time import process_time
from timeit import timeit
from urllib.parse import quote
from xml.sax.saxutils import escape

import pytest

from icekit.common import secrets
from icekit.common.errors import ParameterError, trace, why
from icekit.common.html import render
from icekit.common.terminal import say


@pytest.mark.parametrize(
    ("key", "value", "leaked"),
    [
        ("s3.secret-access-key", "wJalrXUtnFEMI", "wJalrXUtnFEMI"),
        ("token", "eyJhbGciOi", "eyJhbGciOi"),
        ("credential", "client-id:client-secret-value", "client-secret-value"),
        ("header.X-Api-Key", "k-123456", "k-123456"),
        ("uri", "postgresql://user:hunter22@host/db", "hunter22"),
        ("jdbc.password", "pass word", "pass word"),
        ("header.Authorization", "Bearer opaque-word", "opaque-word"),
        ("hadoop.fs.azure.account.key.acct", "azure==", "azure=="),
        ("s3.sse.key", "c2VjcmV0", "c2VjcmV0"),
        ("uri", "postgresql://user:sla/sh@host/db", "sla/sh"),
        ("uri", "postgresql+psycopg2//user:hunter23@host/db", "hunter23"),
        ("uri", "user:hunter24@host:5432/db", "hunter24"),
        (
            "private-key",
            "-----BEGIN X-----\nfirst-line-of-a-key\nsecond-line-of-a-key",
            "second-line-of-a-key",
        ),
    ],
)
def test_a_secret_of_a_profile_is_masked(key: str, value: str, leaked: str) -> None:
    secrets.remember_secrets({key: value})

    assert leaked not in secrets.scrub(f"failed with {value} and {leaked}!")


def test_where_a_token_comes_from_is_no_secret_and_common_words_never_are() -> None:
    secrets.remember_secrets(
        {
            "oauth2-server-uri": "https://login.example/token",
            "header.X-Flag": "true",
            "credential": "root:s3cr3t-value",
            "token": "http",
        }
    )

    assert secrets.scrub("https://x http://y true root") == "https://x http://y true root"
    assert "s3cr3t-value" not in secrets.scrub("root:s3cr3t-value")


def test_a_secret_is_masked_as_urls_json_and_html_spell_it() -> None:
    secrets.remember_secrets(
        {"password": 'p"ss\\wörd&1', "uri": "postgresql://u:p%40ss%2Fword@host/db"}
    )
    spellings = [
        json.dumps('p"ss\\wörd&1'),
        html.escape('p"ss\\wörd&1'),
        escape('p"ss\\wörd&1'),
        quote('p"ss\\wörd&1', safe=""),
        "p@ss/word",
        "p%40ss%2Fword",
    ]

    assert not [s for s in spellings if "***" not in secrets.scrub(s)]


def test_a_secret_is_masked_in_a_page_of_a_template() -> None:
    secret = "it's\"<hidden>&1"
    secrets.remember_secrets({"password": secret})
    page = render("table.html", title=secret, sections=[], is_open=False, document="")

    assert "hidden" in page
    assert "hidden" not in secrets.mask(page)


def test_scrubbing_data_keeps_its_shape_and_numbers() -> None:
    secrets.remember_secrets({"token": "12345678"})

    assert secrets.mask_data({"a": [12345678, "x 12345678"], "b": None}) == {
        "a": [12345678, "x ***"],
        "b": None,
    }


@pytest.fixture
def nothing_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "_known_secrets", set())


def hides(masking: Callable[[str], str], text: str) -> None:
    """See that a text's secret is masked, and that masking it again changes nothing."""
    masked = masking(text)

    assert "LEAK" not in masked
    assert secrets.MASK in masked
    assert masking(masked) == masked


@pytest.mark.usefixtures("nothing_remembered")
@pytest.mark.parametrize(
    "text",
    [
        "sent Authorization: Bearer LEAK",
        "Bearer LEAK was refused",
        "bearer LEAK",
        "'Authorization': 'Token LEAK'",
        '{\\"authorization\\": \\"LEAK\\"}',
        "{Authorization=[Basic LEAK], Host=[h]}",
        "Proxy-Authorization: Basic LEAK",
        "Authorization: AWS4-HMAC-SHA256 Credential=AKIA/2026/s3/aws4_request, "
        "SignedHeaders=host, Signature=LEAK",
        "x-amz-security-token:LEAK",
        "x-api-key: LEAK",
        "Set-Cookie: LEAK",
        '{"access_token": "LEAK", "token_type": "bearer"}',
        "input_value={'access_token': 'LEAK', 'expires_in': 3600}",
        "&quot;token&quot;: &quot;LEAK&quot;",
        '{\\"refresh_token\\":\\"LEAK\\"}',
        '{"s3.secret-access-key": "LEAK", "secretAccessKey": "LEAK", "accountKey": "LEAK"}',
        "{uri=http://host, token=LEAK, s3.secret-access-key=LEAK}",
        "grant_type=x&client_secret=LEAK&scope=y",
        "https://b.host/k?X-Amz-Algorithm=A&X-Amz-Credential=LEAK%2Fs3&X-Amz-Security-Token=LEAK%2F%2B&X-Amz-Signature=LEAK",
        "https://b.host/k?a=1&amp;X-Goog-Signature=LEAK",
        "url=https%3A%2F%2Fb.host%2Fk%3Fa%3D1%26X-Amz-Signature%3DLEAK%26b%3D1",
        "https://acct.host/c?sv=2024&sig=LEAK%2Bx%3D&se=1",
        "sig=LEAK0123456789abcdef&sv=1",
        "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=LEAK==;EndpointSuffix=x",
        "jdbc:postgresql://host/db?user=me&password=LEAK",
        "jdbc:sqlserver://host;user=me;password=LEAK;x=y",
        "jdbc:postgresql://me:LEAK@LEAK@host/db",
        "https://LEAK@host/repository",
        "invalid token: LEAK0123456789abcdef",
        "token 'eyJhbGciOiJIUzI1NiJ9.LEAK12345678.LEAK'",
        "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nMIILEAK\nLEAK==\n-----END RSA "
        "PRIVATE KEY-----",
        '"private_key": "-----BEGIN PRIVATE KEY-----\\nMIILEAK\\nLEAK\\n"',
    ],
)
def test_what_looks_like_a_secret_is_masked_though_nobody_has_told_it(text: str) -> None:
    hides(secrets.scrub, text)


@pytest.mark.usefixtures("nothing_remembered")
@pytest.mark.parametrize(
    "text",
    [
        "Bearer token missing; WWW-Authenticate: Bearer realm='x'; Basic authentication is off",
        "Check the profile's credential or token. The token has expired.",
        "abfss://container@account.dfs.core.windows.net/db and s3://bucket/a@b and "
        "thrift://host:9083",
        "MERGE INTO t USING s ON t.token = s.token AND t.sig=s.sig WHEN MATCHED THEN UPDATE SET "
        "token='x', password = 'y'",
        "CALL `c`.system.rewrite_data_files(table => 'db.t', where => '(`token` = ''abc'')', "
        "options => map('token', '1'))",
        '{"column": "token", "token_type": "bearer", "oauth2-server-uri": "https://host/token"}',
        "http://host:9000/path?since=1&until=2 and /tokens/00001-0aa.metadata.json",
        "a maiden with eyJ and x-axis: 3",
        "File file:/w/visits/data/cookie=abc/f.parquet does not exist",
        "s3://bucket/path http://host:9000",
    ],
)
def test_words_sql_and_locations_that_only_resemble_secrets_are_left(text: str) -> None:
    assert secrets.scrub(text) == text


@pytest.mark.parametrize(
    "piece",
    [
        "\\",
        '"',
        '"token":"',
        "{token=",
        "eyJ",
        "://a:",
        "Bearer ",
        "&token=",
        "-----BEGIN PRIVATE KEY-----",
        "x-",
    ],
)
def test_no_text_takes_long(piece: str) -> None:
    text = '"token": "' + piece * (200_000 // len(piece))
    took = timeit(lambda: secrets.scrub(text), number=1, timer=process_time)

    assert took < 10


@pytest.mark.usefixtures("nothing_remembered")
@pytest.mark.parametrize(
    "text",
    [
        "smtp://icekit:${SMTP_PASSWORD}@smtp.example.com",
        "smtp://icekit:$SMTP_PASSWORD@smtp.example.com",
        "https://${TOKEN}@host/repository?sig=${SIGNATURE}",
        "Authorization: Bearer ${HOOK_TOKEN}",
        '{"password": "${PASSWORD}"}',
    ],
)
def test_where_a_secret_is_to_be_put_is_no_secret(text: str) -> None:
    secrets.remember_secrets({"token": "${HOOK_TOKEN}", "uri": text})

    assert secrets.scrub(text) == secrets.mask(text) == text


@pytest.mark.usefixtures("nothing_remembered")
@pytest.mark.parametrize(
    "text",
    [
        "DELETE FROM web.visits WHERE cookie = 'abc'",
        "DELETE FROM web.visits WHERE token = 'abcdefghijklmnop1'",
        "file:/w/visits/data/cookie=abc/f.parquet is gone",
        "web.cookie: 1 action",
        "{signature=3, id=7}",
        '{"key_signature": "C major", "cookie": "abc", "token": "t-1"}',
        "a bearer bond and authorization: pending",
    ],
)
def test_peoples_names_data_paths_and_sql_are_theirs(text: str) -> None:
    assert secrets.mask(text) == text
    assert secrets.mask_data({"where": [text]}) == {"where": [text]}
    assert str(ParameterError(text)) == text


@pytest.mark.usefixtures("nothing_remembered")
@pytest.mark.parametrize(
    "text",
    [
        "jdbc:postgresql://me:LEAK@host/db",
        "https://b.host/k?X-Amz-Algorithm=A&X-Amz-Credential=LEAK%2Fs3&X-Amz-Security-Token=LEAK%2F%2B&X-Amz-Signature=LEAK",
        "https://b.host/k?a=1&amp;X-Goog-Signature=LEAK",
        "https://acct.host/c?sv=2024&sig=LEAK0123456789abcdef%2Bx%3D&se=1",
        "AccountName=a;AccountKey=LEAK==;EndpointSuffix=x",
        "token eyJhbGciOiJIUzI1NiJ9.LEAK12345678.LEAK",
        "Bearer LEAK0123456789abcdef",
        "-----BEGIN RSA PRIVATE KEY-----\nMIILEAK\nLEAK==\n-----END RSA PRIVATE KEY-----",
    ],
)
def test_what_can_be_nothing_but_a_secret_is_masked_everywhere(text: str) -> None:
    hides(secrets.mask, text)


@pytest.mark.parametrize("key", ["gcs.encryption-key", "gcs.decryption-key", "some.decryption.key"])
def test_keys_that_encrypt_are_secrets_and_their_ids_are_not(key: str) -> None:
    assert secrets.is_secret(key)
    assert not secrets.is_secret(f"{key}-id")


def test_an_error_holds_no_secret_wherever_it_is_shown() -> None:
    error = ParameterError("refused: Bearer leak.0123456789abcdef")
    # As after "from None".
    error.__context__ = KeyError("Authorization: Basic bGVhaw==")

    assert "leak" not in f"{error} {error!r}"
    assert "KeyError: 'Authorization: ***" in trace(error)
    assert "bGVhaw" not in trace(error)


def test_a_trace_has_no_message_of_a_parser_because_it_quotes_what_it_read() -> None:
    for text in ("[a]\nleak = 1\nleak = 2", "leak = 1"):
        with pytest.raises(configparser.Error) as unread:
            configparser.ConfigParser().read_string(text)
        error = ParameterError("The file cannot be read.")
        error.__cause__ = unread.value

        assert "ParameterError: The file cannot be read." in trace(error)
        assert type(unread.value).__name__ in trace(error)
        assert "leak" not in trace(error) + why(unread.value)


@pytest.mark.usefixtures("nothing_remembered")
def test_icekits_own_words_on_the_terminal_keep_peoples_names(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with secrets.scrubbed_output():
        say("web.cookie: 1 action")
        say("web.cookie: 1 action", is_error=True)

    assert capsys.readouterr() == ("web.cookie: 1 action\n", "web.cookie: 1 action\n")


def test_all_that_a_command_prints_or_logs_passes_the_same_place(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with secrets.scrubbed_output():
        print("Bearer leak")
        print("Bearer leak", file=sys.stderr)
        logging.getLogger("icekit.test").addHandler(handler := logging.StreamHandler())
        logging.getLogger("icekit.test").error("Bearer leak")
    logging.getLogger("icekit.test").removeHandler(handler)

    out, err = capsys.readouterr()
    assert out == "Bearer ***\n"
    assert err == "Bearer ***\nBearer ***\n"
