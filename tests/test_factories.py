from icekit.diagnose import diagnose
from icekit.facts.model import Kind
from tests import factories as make


def test_the_table_of_the_defaults_is_healthy() -> None:
    assert diagnose(make.table_facts()) == ()


def test_an_empty_table_is_healthy_too() -> None:
    assert diagnose(make.empty_facts()) == ()


def test_properties_move_the_bucket_edges() -> None:
    facts = make.table_facts(properties={"write.target-file-size-bytes": str(make.MIB)}, groups=())

    assert facts.target_bytes == make.MIB
    assert make.MIB in facts.data_edges


def test_a_group_has_the_sizes_it_was_given() -> None:
    group = make.file_group(1, 2 * make.GIB, kind=Kind.EQUALITY_DELETES)

    assert (group.file_count, group.min_bytes, group.max_bytes) == (2, 1, 2 * make.GIB)


def test_manifests_list_the_files_there_are() -> None:
    facts = make.table_facts(groups=(make.file_group(1, 2), make.file_group(3, kind=Kind.POSITION_DELETES)))

    assert (facts.manifests.data_entry_count, facts.manifests.delete_entry_count) == (2, 1)
