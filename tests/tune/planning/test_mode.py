"""Where a scan is planned follows Iceberg's own rules."""

from __future__ import annotations

from dataclasses import replace

import pytest

from icekit.tune.card import in_force
from icekit.tune.planning.measure import DISTRIBUTED, LOCAL, Circumstances, ManifestsRead, decide

MB = 1024 * 1024
AUTO = in_force("read.data-planning-mode", default=("the default", "auto"))
#: Enough of everything for the executors to plan.
LARGE = Circumstances(
    data=ManifestsRead(1_000, 4_000 * MB),
    deletes=ManifestsRead(500, 3_000 * MB),
    may_have_equality_deletes=False,
    threads=8,
    parallelism=200,
    slots=64,
    max_result_bytes=1024 * MB,
    data_mode=AUTO,
    delete_mode=AUTO,
)


def stated(mode: str) -> Circumstances:
    chain = in_force("read.data-planning-mode", properties=[("read.data-planning-mode", mode)])
    return replace(LARGE, data_mode=chain)


def test_much_metadata_is_planned_by_the_executors() -> None:
    data, deletes = decide(LARGE)

    assert (data.place, deletes.place) == (DISTRIBUTED, DISTRIBUTED)
    assert "1,000 manifests" in data.reasons[0]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"parallelism": 8}, "parallelism of 8"),
        ({"data": ManifestsRead(16, 4_000 * MB)}, "two per thread"),
        ({"data": ManifestsRead(1_000, 8 * 128 * MB)}, "128 MiB per thread"),
        ({"may_have_equality_deletes": True}, "equality deletes"),
        ({"max_result_bytes": 255 * MB}, "maxResultSize is 255 MiB"),
        ({"max_result_bytes": 0}, "counts as 0"),
        ({"data": ManifestsRead(0, 0)}, "no manifests"),
    ],
)
def test_each_of_these_keeps_planning_in_the_driver(change: dict[str, object], reason: str) -> None:
    data, _ = decide(replace(LARGE, **change))  # type: ignore[arg-type]

    assert data.place == LOCAL
    assert reason in data.reasons[0]


def test_what_is_stated_is_followed_unless_results_may_not_come_back() -> None:
    assert decide(stated("local"))[0].place == LOCAL
    small = replace(stated("distributed"), data=ManifestsRead(1, 5))
    assert decide(small)[0].place == DISTRIBUTED
    assert decide(replace(small, may_have_equality_deletes=True))[0].place == DISTRIBUTED
    assert decide(replace(small, max_result_bytes=MB))[0].place == LOCAL
    assert decide(replace(small, data=ManifestsRead(0, 0)))[0].place == LOCAL
