"""What a profile keeps secret is taken out of every text."""

from __future__ import annotations

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
