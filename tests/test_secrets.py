"""What a profile keeps secret is taken out of every text."""

from __future__ import annotations

import html
import json

import pytest

from icekit import secrets


@pytest.mark.parametrize(
    ("key", "value", "leaked"),
    [
        ("s3.secret-access-key", "wJalrXUtnFEMI", "wJalrXUtnFEMI"),
        ("token", "eyJhbGciOi", "eyJhbGciOi"),
        ("credential", "client-id:client-secret-value", "client-secret-value"),
        ("header.X-Api-Key", "k-123456", "k-123456"),
        ("uri", "postgresql://user:hunter22@host/db", "hunter22"),
        ("jdbc.password", "pass word", "pass word"),
    ],
)
def test_a_secret_of_a_profile_is_masked(key: str, value: str, leaked: str) -> None:
    secrets.remember({key: value})

    assert leaked not in secrets.scrub(f"failed with {value} and {leaked}!")


def test_a_password_in_any_uri_is_masked_without_having_been_seen() -> None:
    assert secrets.scrub("jdbc://me:topsecret@host/db") == "jdbc://me:***@host/db"


def test_what_is_no_secret_is_left() -> None:
    secrets.remember({"warehouse": "s3://bucket/path", "s3.endpoint": "http://host:9000"})

    assert secrets.scrub("s3://bucket/path http://host:9000") == "s3://bucket/path http://host:9000"


def test_where_a_token_comes_from_is_no_secret_and_common_words_never_are() -> None:
    secrets.remember(
        {"oauth2-server-uri": "https://login.example/token", "header.X-Flag": "true", "credential": "root:s3cr3t-value", "token": "http"}
    )

    assert secrets.scrub("https://x http://y true root") == "https://x http://y true root"
    assert "s3cr3t-value" not in secrets.scrub("root:s3cr3t-value")


def test_a_secret_is_masked_as_urls_json_and_html_spell_it() -> None:
    secrets.remember({"password": 'p"ss\\wörd&1', "uri": "postgresql://u:p%40ss%2Fword@host/db"})
    spellings = [json.dumps('p"ss\\wörd&1'), html.escape('p"ss\\wörd&1'), "p@ss/word", "p%40ss%2Fword"]

    assert not [s for s in spellings if "***" not in secrets.scrub(s)]


def test_scrubbing_data_keeps_its_shape_and_numbers() -> None:
    secrets.remember({"token": "12345678"})

    assert secrets.scrub_data({"a": [12345678, "x 12345678"], "b": None}) == {"a": [12345678, "x ***"], "b": None}
