"""Facts of tables with these files, and of those with deletes, from counts by sequence number."""

from icekit.health.facts.files import FileGroup, SequenceCounts
from icekit.health.facts.model import TableFacts
from icekit.iceberg.file_kind import Kind
from icekit.iceberg.partition import Partition
from tests.factories import MIB, file_group, findings, sequence, table_facts

SMALL = findings("small_files", "oversized_files")


def of(*groups: FileGroup, **more: object) -> TableFacts:
    return table_facts(groups=groups, **more)


def facts_of(rows: list[SequenceCounts], *groups: FileGroup, **more: object) -> TableFacts:
    """Facts of the sequence counts; data and equality delete files follow from them, per
    partition.
    """
    made = list(groups)
    for each in dict.fromkeys(r.partition for r in rows):
        data = sum(r.data_file_count for r in rows if r.partition == each)
        deletes = [r for r in rows if r.partition == each and r.equality_delete_file_count]
        equality = sum(r.equality_delete_file_count for r in deletes)
        if data and not any(g.kind is Kind.DATA and g.partition == each for g in groups):
            made.append(file_group(*[500 * MIB] * data, of=each, records_per_file=100))
        if equality:
            records = sum(r.equality_delete_record_count for r in deletes) // equality
            made.append(
                file_group(
                    *[MIB] * equality, kind=Kind.EQUALITY_DELETES, of=each, records_per_file=records
                )
            )
    return table_facts(groups=tuple(made), sequences=tuple(rows), **more)


def data(number: int, of: Partition | None = None, files: int = 1) -> SequenceCounts:
    return sequence(number, of, data_file_count=files, data_record_count=100 * files)


def equality(number: int, of: Partition | None = None) -> SequenceCounts:
    return sequence(number, of, equality_delete_file_count=1, equality_delete_record_count=10)


def position(
    number: int, files: int = 1, records: int = 10, of: Partition | None = None
) -> SequenceCounts:
    return sequence(
        number, of, position_delete_file_count=files, position_delete_record_count=records
    )


def under_equality_deletes(deletes: int = 1, **more: object) -> TableFacts:
    """Three well-sized files of the first sequence number, and deletes of later ones."""
    later = [equality(2 + number) for number in range(deletes)]
    return facts_of([data(1, files=3), *later], **more)
