"""What a metadata file is full of is measured, whatever it is."""

from typing import Any

import pytest

from icekit.health.facts.metadata_sections import largest_sections

SMALL: dict[str, Any] = {
    "format-version": 2,
    "properties": {"a": "1"},
    "snapshots": [{"snapshot-id": 1, "summary": {"operation": "append"}}],
    "snapshot-log": [],
    "refs": {"main": {"snapshot-id": 1, "type": "branch"}},
}
LONG = "x" * 10_000


@pytest.mark.parametrize(
    ("name", "value", "largest"),
    [
        ("properties", {"a": "1", "report": LONG}, "report"),
        ("refs", {f"tag{n}": {"snapshot-id": 1, "type": "tag"} for n in range(200)}, None),
        ("statistics", [{"snapshot-id": 1, "statistics-path": LONG}], None),
        ("something-new", LONG, None),
        (
            "snapshots",
            [{"summary": {"operation": "append", f"partitions.day={n}": LONG}} for n in range(3)],
            "partitions.",
        ),
    ],
)
def test_the_largest_section_comes_first_with_what_is_largest_in_it(
    name: str, value: Any, largest: str | None
) -> None:
    (first, *others) = largest_sections({**SMALL, name: value})

    assert (first.name, first.largest) == (name, largest)
    assert first.size_in_bytes > 7_000
    assert first.share > 0.9
    assert len(others) == 2


def test_a_snapshot_without_a_summary_has_nothing_largest() -> None:
    (first, *_) = largest_sections({"snapshots": [{"snapshot-id": n} for n in range(50)]})

    assert (first.name, first.entry_count, first.largest) == ("snapshots", 50, None)
