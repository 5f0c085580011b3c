"""Older versions of Spark and Iceberg."""

from icekit.engine.compat import historical_filter


def test_an_older_iceberg_gets_no_filter_whose_names_it_would_look_up_in_todays_schema() -> None:
    assert (
        historical_filter("`a` = 1", "1.12.0") == historical_filter("`a` = 1", "2.0.0") == "`a` = 1"
    )
    for older in ("1.11.0", "1.9.2-amzn-0", "of an unknown version"):
        assert (
            historical_filter("`a` = 1", older) == "CAST(coalesce(`a` = 1, false) AS int) + 0 = 1"
        )
