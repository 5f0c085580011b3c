"""The advisory size that icekit finds brings files to their target: what ``python -m rigs.bench file_sizes`` measures."""

from __future__ import annotations

import pytest

from icekit.api import Lake
from rigs.bench.file_sizes import CODECS, KINDS, measure

pytestmark = pytest.mark.spark


@pytest.mark.soak
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_size_found_brings_the_mean_within_15_percent_of_the_target(lake: Lake, scratch: str, kind: str, codec: str) -> None:
    trial = measure(lake, scratch, kind, codec)

    _, after = trial.chosen
    assert after.enough_mean is not None
    assert after.hits, f"{after.enough_mean / trial.target_bytes:.2f} of the target in {after.files} files"


def test_the_size_found_brings_the_mean_of_one_table_within_15_percent_of_the_target(lake: Lake, scratch: str) -> None:
    trial = measure(lake, scratch, "long URLs", "snappy", target=2**18)

    _, after = trial.chosen
    assert trial.before.enough_mean is not None
    assert trial.before.enough_mean < 0.75 * trial.target_bytes
    assert after.hits
