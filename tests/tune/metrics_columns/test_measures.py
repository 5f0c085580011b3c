"""Bytes of manifests, beginnings of texts, files that other bounds would skip: computed without Spark."""

from __future__ import annotations

import io

import fastavro
import pytest

from icekit.facts.model import Column
from icekit.tune.filters import All, Filter, Leaf, bounds_of
from icekit.tune.metrics_columns.advise import DrawnColumn, colliding, layout, measure, prefix_of, skipping
from icekit.tune.metrics_columns.model import rank
from tests.tune.metrics_columns.made import skip, trial

URL = "https://tracking.example.org/v1/"


def pairs(name: str, key: int, value: str) -> dict[str, object]:
    record = {
        "type": "record",
        "name": f"k{key}_v{value}{name}",
        "fields": [{"name": "key", "type": "int"}, {"name": "value", "type": value}],
    }
    return {"name": name, "type": {"type": "array", "items": record}}


def manifest(entries: int) -> bytes:
    counts = [pairs(n, i, "long") for i, n in enumerate(("column_sizes", "value_counts", "null_value_counts", "nan_value_counts"))]
    bounds = [pairs(n, i + 9, "bytes") for i, n in enumerate(("lower_bounds", "upper_bounds"))]
    file = {"type": "record", "name": "data_file", "fields": [*counts, *bounds]}
    schema = {
        "type": "record",
        "name": "entry",
        "fields": [{"name": "status", "type": "int"}, {"name": "sequence_number", "type": "long"}, {"name": "data_file", "type": file}],
    }
    one = {
        "column_sizes": [{"key": 1, "value": 1000}],
        "value_counts": [{"key": 1, "value": 50}, {"key": 7, "value": 50}],
        "null_value_counts": [{"key": 1, "value": 0}],
        "nan_value_counts": [],
        "lower_bounds": [{"key": 1, "value": b"aaaa"}],
        "upper_bounds": [{"key": 1, "value": b"zzzzzz"}],
    }
    out = io.BytesIO()
    fastavro.writer(out, fastavro.parse_schema(schema), [{"status": 1, "sequence_number": 1, "data_file": one}] * entries)
    return out.getvalue()


def test_bytes_of_each_column_are_those_that_avro_takes() -> None:
    raw = manifest(3)
    listed = [{"manifest_path": "m", "content": 0, "added_files_count": 3}]
    columns = (Column(1, "url", "string", False, 0, "truncate(16)"), Column(2, "new", "int", False, 1, "none"))

    found = measure(listed, columns, lambda _: raw)

    url, new = found.by_name["url"], found.by_name["new"]
    # Each value comes with its key, one byte; 1000 and 50 take two and one bytes, bounds one more for their length.
    assert url.count_bytes == (1 + 2) + (1 + 1) + (1 + 1)
    assert url.bound_bytes == (1 + 1 + 4) + (1 + 1 + 6)
    assert (url.counted_files, url.bounded_files, found.files) == (3, 3, 3)
    assert (new.size_in_bytes, new.counted_files) == (0, 0)
    assert found.gone_bytes == 1 + 1
    assert found.entry_bytes > url.size_in_bytes + found.gone_bytes


def test_a_manifest_is_a_header_and_blocks() -> None:
    raw = manifest(3)
    header, (records, stored, decoded) = layout(raw)

    assert records == 3
    assert 0 < header < len(raw)
    assert header + stored <= len(raw)
    assert decoded > 0


def test_a_table_without_manifests_has_no_bytes() -> None:
    assert measure([], (), lambda _: b"").files == 0


def test_texts_with_a_long_common_beginning_all_collide_in_sixteen_characters() -> None:
    found = prefix_of("url", [f"{URL}{i:04}/{'x' * 20}" for i in range(500)] + [None])

    assert found is not None
    assert (found.common, found.colliding, found.needed) == (len(URL) + 1, 1.0, 48)


def test_texts_that_differ_early_do_not_collide() -> None:
    found = prefix_of("tail", [f"N{i:05}" for i in range(500)])

    assert found is not None
    assert (found.colliding, found.needed) == (0.0, 16)


def test_values_that_are_equal_are_no_collision_and_one_value_has_no_beginnings() -> None:
    assert prefix_of("t", ["a", "a", None]) is None
    assert colliding({"abc", "abd", "x"}, 2) == pytest.approx(2 / 3)


def test_the_shortest_length_that_skips_as_much_as_whole_bounds_is_found() -> None:
    files = [[f"{URL}{i:02}a", f"{URL}{i:02}b"] for i in range(10)]
    lookup = Filter("url", Leaf("url", "=", (f"{URL}04a",)))

    found = skipping(DrawnColumn("url", [v for f in files for v in f], bounds_of(files), is_text=True), [lookup], files=10, now=10.0)

    assert dict(found.by_mode)["truncate(16)"] == 10
    assert found.full == 1
    assert found.best == ("truncate(48)", 1.0)
    assert found.if_sorted is not None
    assert found.if_sorted < 10


def test_what_a_filter_asks_of_other_columns_does_not_count() -> None:
    both = Filter("", All((Leaf("a", "=", (1,)), Leaf("b", "=", (99,)))))

    found = skipping(DrawnColumn("a", [], bounds_of([[0, 1], [1, 2], [5], [6]]), is_text=False), [both], files=4, now=4.0)

    assert found.full == 2
    assert found.if_sorted is None


def test_other_bounds_never_read_more_than_is_read_now() -> None:
    lookup = Filter("", Leaf("a", ">=", (0,)))

    assert skipping(DrawnColumn("a", [], bounds_of([[1], [2]]), is_text=False), [lookup], files=100, now=3.0).full == 3


def test_a_filter_without_values_tells_nothing_of_files() -> None:
    found = skipping(DrawnColumn("a", [1, 2], bounds_of([[1], [2]]), is_text=False), [Filter("", Leaf("a", "="))], files=4, now=None)

    assert (found.by_mode, found.if_sorted, found.best) == ((), None, None)


def test_modes_are_ordered_by_what_they_keep() -> None:
    modes = ["none", "counts", "truncate(8)", "truncate(16)", "truncate(96)", "full"]

    assert sorted(modes, key=rank) == modes
    assert rank("Truncate(16)") == rank("truncate(16)")


def test_a_trial_tells_its_shrinking_with_and_without_headers() -> None:
    one = trial()

    assert one.shrinks == pytest.approx(0.8)
    assert one.entry_bytes == (2250.0, 250.0)
    assert one.reads == (40.0, 1.0)
    assert one.losses == ()
    assert skip(full=None).best is None
