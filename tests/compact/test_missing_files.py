"""A compaction that needs a file which is gone names it, and changes nothing."""

import pytest

from icekit.errors import IcekitError, MetadataUnreadable
from tests.compact.tables import Named

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("by", ["part", ""], ids=["one group of two", "the only group"])
def test_a_trial_and_a_run_name_the_file_that_is_gone(named: Named, by: str) -> None:
    table = named(f"gone_{by or 'whole'}").create(by=by).fill()
    plan = table.plan()
    gone = table.data_files()[0]
    gone.unlink()
    before = table.snapshot_id()

    with pytest.raises(IcekitError, match=gone.name):
        table.plan(trial=True)
    assert table.snapshot_id() == before
    outcome = table.run(plan)

    assert outcome.status == "failed"
    assert gone.name in repr(outcome)


def test_a_table_that_is_known_to_miss_files_is_not_planned(named: Named) -> None:
    table = named("known_gone").create(by="").fill()
    gone = table.data_files()[0]
    gone.unlink()

    with pytest.raises(MetadataUnreadable, match=rf"{gone.name}, so it is not compacted\. Restore"):
        table.plan(storage=True)
