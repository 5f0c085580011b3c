"""The advisory size that icekit finds brings files to their target: what ``python -m rigs.bench
file_sizes`` measures.
"""

from __future__ import annotations

import pytest

from icekit.api import Lake
from icekit.tune.file_sizes import LARGE_MEAN, NOW, SIZED
from rigs.bench.file_sizes import CODECS, KINDS, TARGET, measure

pytestmark = pytest.mark.spark


@pytest.mark.soak
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_size_found_brings_the_mean_within_a_fifth_of_the_target(
    lake: Lake, scratch: str, kind: str, codec: str
) -> None:
    measured = measure(lake, scratch, kind, codec).measured
    mean = measured.value(SIZED if SIZED in measured.values_by_variant else NOW, LARGE_MEAN)

    assert mean is not None
    # The mean of all files, the small last one of each partition included.
    assert abs(mean / TARGET - 1) <= 0.2


def test_the_size_found_brings_the_mean_of_one_table_nearer_to_the_target(
    lake: Lake, scratch: str
) -> None:
    measured = measure(lake, scratch, "long URLs", "snappy", target=2**18).measured
    before, after = measured.value(NOW, LARGE_MEAN), measured.value(SIZED, LARGE_MEAN)

    assert before is not None
    assert before < 0.75 * 2**18
    assert after is not None
    assert before < after <= 1.05 * 2**18
