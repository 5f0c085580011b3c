"""What a person sets for Spark is read before it starts."""

from __future__ import annotations

import pytest

from icekit.catalog.session import own_settings
from icekit.errors import SparkUnavailable


def test_settings_are_read_as_a_shell_reads_them() -> None:
    assert own_settings("a=1 'b=-X -Y=2' c=") == {"a": "1", "b": "-X -Y=2", "c": ""}


@pytest.mark.parametrize(
    ("text", "said"), [("'a=1", "No closing quotation"), ("spark.master", "'spark.master' has no = after a key"), ("=1", "'=1' has no")]
)
def test_what_is_no_setting_is_named(text: str, said: str) -> None:
    with pytest.raises(SparkUnavailable, match=f"ICEKIT_SPARK_CONF must be key=value.*{said}"):
        own_settings(text)
