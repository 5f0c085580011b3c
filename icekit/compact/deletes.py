"""Work out which deletes hang over each partition, how often they are opened, and which a rewrite drops."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from icekit.facts.files import FileGroup, Kind, Partition, SequenceCounts
from icekit.facts.measures import equality_deletes_applied, sequences_by_partition
from icekit.facts.model import TableFacts


@dataclass(frozen=True, slots=True)
class Over:
    """The deletes over one partition's data.

    ``files`` are data files under at least one delete, ``opens`` the pairs of a data file and
    a delete file that a full scan opens beside it (an upper bound: bounds are not looked at),
    ``deleted_share`` the delete records per data record, at most 1. ``only_file_scoped``
    tells that each delete names a single data file, which is all that
    ``delete-ratio-threshold`` counts.
    """

    files: int
    opens: int
    deleted_share: float
    only_file_scoped: bool
    kinds: tuple[str, ...]


def deletes_over(facts: TableFacts, min_ratio: float = 0.0) -> Mapping[Partition, Over]:
    """The deletes over each partition where they are worth a rewrite.

    Equality deletes always are, as each data file loads all that apply to it; the others from
    ``min_ratio`` delete records per data record on.
    """
    if not facts.has_deletes:
        return {}
    groups: dict[Partition, dict[Kind, FileGroup]] = defaultdict(dict)
    for each in facts.groups:
        groups[each.partition][each.kind] = each
    equality = {a.partition: a for a in equality_deletes_applied(facts)}
    sequences = sequences_by_partition(facts)
    # Within a range of sequence numbers the order is not known: there deletes count as later.
    exact = 1 if facts.sequence_width == 1 else 0
    everywhere = [s for p, rows in sequences.items() if facts.spec(p.spec_id).is_unpartitioned for s in rows]
    found: dict[Partition, Over] = {}
    for partition, kinds in groups.items():
        data = kinds.get(Kind.DATA)
        if data is None or not data.record_count:
            continue
        heavy: list[str] = []
        share = 0.0
        files = 0
        scoped = True
        applied = equality.get(partition)
        if applied:
            heavy.append("equality deletes")
            share, files, scoped = applied.max_deletes_per_file / data.record_count, applied.data_file_count, False
        for kind in (Kind.POSITION_DELETES, Kind.DELETION_VECTORS):
            group = kinds.get(kind)
            if group is None or group.record_count / data.record_count < min_ratio:
                continue
            heavy.append(kind.value.replace("_", " "))
            share += group.record_count / data.record_count
            alone = group.file_scoped_count == group.file_count
            scoped = scoped and alone
            files = max(files, min(group.file_count, data.file_count) if alone else _reached(sequences.get(partition, ())))
        if heavy:
            rows = sequences.get(partition, [])
            is_global = facts.spec(partition.spec_id).is_unpartitioned
            opens = _opens(rows, [] if is_global else everywhere, kinds, exact)
            found[partition] = Over(files, opens, min(share, 1.0), scoped, tuple(heavy))
    return found


def _reached(rows: Iterable[SequenceCounts]) -> int:
    """Data files that some position delete file may apply to, by sequence number."""
    rows = list(rows)
    newest = max((r.sequence_number for r in rows if r.position_delete_file_count), default=-1)
    return sum(r.data_file_count for r in rows if r.sequence_number <= newest)


def _opens(rows: Iterable[SequenceCounts], everywhere: Iterable[SequenceCounts], kinds: Mapping[Kind, FileGroup], exact: int) -> int:
    """Pairs of a data file and a delete file that applies to it (table spec, "Scan Planning")."""
    own = sorted(rows, key=lambda r: -r.sequence_number)
    equality = sorted(
        [(r.sequence_number, r.equality_delete_file_count) for r in (*own, *everywhere) if r.equality_delete_file_count], reverse=True
    )
    position = kinds.get(Kind.POSITION_DELETES)
    vectors = kinds.get(Kind.DELETION_VECTORS)
    # Sequence counts hold vectors among the position deletes; both kinds that name one file count once.
    scoped = position is None or position.file_scoped_count == position.file_count
    opens = (vectors.file_count if vectors else 0) + (position.file_count if position and scoped else 0)
    later_equality = later_position = place = 0
    for row in own:
        while place < len(equality) and equality[place][0] >= row.sequence_number + exact:
            later_equality += equality[place][1]
            place += 1
        later_position += 0 if scoped else row.position_delete_file_count
        opens += row.data_file_count * (later_equality + later_position)
    return opens


def dropped_by(facts: TableFacts, partitions: Iterable[Partition], sequence_number: int) -> int:
    """Delete files that go when every data file under deletes in these partitions is rewritten.

    ``sequence_number`` is that of the snapshot the rewrite starts from, which rewritten files
    keep (``use-starting-sequence-number``). ``remove-dangling-deletes`` then drops what applies
    to no live data file: equality deletes not above it, position deletes that name one file,
    others below it. Deletion vectors go with their data file. Elsewhere it drops what is older
    than all data of its partition (RemoveDanglingDeleteFilesAction).
    """
    chosen = set(partitions)
    scoped = {g.partition: g.file_scoped_count for g in facts.of_kind(Kind.POSITION_DELETES)}
    vectors = {g.partition: g.file_count for g in facts.of_kind(Kind.DELETION_VECTORS)}
    dropped = sum(n for partition, n in vectors.items() if partition in chosen)
    for partition, rows in sequences_by_partition(facts).items():
        rewritten = partition in chosen
        lowest = sequence_number if rewritten else min((r.sequence_number for r in rows if r.data_file_count), default=sequence_number + 1)
        if rewritten or not facts.spec(partition.spec_id).is_unpartitioned:
            dropped += sum(r.equality_delete_file_count for r in rows if r.sequence_number <= lowest)
        older = sum(r.position_delete_file_count for r in rows if r.sequence_number < lowest)
        # SequenceCounts hold vectors among the position deletes; those were counted above.
        files = sum(r.position_delete_file_count for r in rows) - vectors.get(partition, 0)
        if rewritten and scoped.get(partition, 0) == files:
            dropped += files
        else:
            dropped += min(older, files)
    return dropped
