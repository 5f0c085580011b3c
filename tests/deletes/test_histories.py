"""Random histories of small tables: a rewrite or a conversion at their end changes no row, a
conversion in no snapshot.

``ICEKIT_EXAMPLES`` sets how many are tried; the few of the suite are the same each time.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, event, given, note, settings
from hypothesis import strategies as st

from icekit.maintain.run.rewrite import ConvertFirst
from icekit.rows.deletes import join
from icekit.rows.rewrite import rewrite_session
from icekit.rows.rewrite.rewrite_session import NotHere
from tests.deletes.tables import Table
from tests.deletes.writing import Commit

pytestmark = pytest.mark.spark

EXAMPLES = int(os.environ.get("ICEKIT_EXAMPLES", "3"))

ids = st.sets(st.integers(0, 7), min_size=1, max_size=4)
keys = st.sets(st.sampled_from(["0", "1", "2", "NULL"]), min_size=1, max_size=2)
partitions = st.sampled_from([0, 1])
#: Methods of a story with their arguments; what is named twice happens twice as often.
STEPS: list[tuple[Any, ...]] = [
    ("append", ids, partitions),
    ("upsert", ids, partitions),
    ("upsert", ids, partitions),
    ("delete_by_id", ids, partitions),
    ("delete_by_id", ids, partitions),
    ("delete_by_key", keys, partitions),
    ("delete_everywhere", ids),
    ("delete_by_position", ids),
    ("compact", st.sampled_from(["rewrite-all", "delete-file-threshold"])),
    ("rename",),
    ("add_column",),
    ("partition",),
    ("upgrade",),
    ("convert",),
    ("rewrite",),
]
steps = st.one_of(*(st.tuples(st.just(name), *arguments) for name, *arguments in STEPS))


@dataclass
class Story:
    """A table with rows of ``id``, a key that may be null, and a partition ``p``, to which steps
    happen.
    """

    table: Table
    key: str = "k"
    more: int = 0
    format: str = "parquet"

    @property
    def part(self) -> Callable[[int], dict[str, Any] | None]:
        partitioned = self.table.files.table().spec().isPartitioned()
        return lambda p: {"p": p} if partitioned else None

    def _data(self, commit: Commit, chosen: set[int], p: int) -> Commit:
        more = "".join(f", 'm{i}'" for i in range(self.more))
        k = "CASE WHEN id % 4 = 3 THEN NULL ELSE CAST(id % 4 AS int) END"
        rows = (
            f"SELECT id, {k}, {p}{more} FROM (SELECT "
            f"explode(array({', '.join(map(str, sorted(chosen)))})) AS id)"
        )
        return commit.data(rows, self.part(p), format=self.format)

    def append(self, chosen: set[int], p: int) -> None:
        self._data(self.table.commit(), chosen, p).done()

    def upsert(self, chosen: set[int], p: int) -> None:
        commit = self.table.commit().deletes(
            "id", _values(chosen), self.part(p), format=self.format
        )
        self._data(commit, chosen, p).done()

    def delete_by_id(self, chosen: set[int], p: int) -> None:
        self.table.commit().deletes("id", _values(chosen), self.part(p), format=self.format).done()

    def delete_by_key(self, chosen: set[str], p: int) -> None:
        self.table.commit().deletes([self.key], _values(chosen), self.part(p)).done()

    def delete_everywhere(self, chosen: set[int]) -> None:
        self.table.commit().deletes("id", _values(chosen), spec=0).done()

    def delete_by_position(self, chosen: set[int]) -> None:
        self.table.sql(f"DELETE FROM {{t}} WHERE id IN ({', '.join(map(str, chosen))})")

    def compact(self, option: str) -> None:
        value = "true" if option == "rewrite-all" else "1"
        options = f"map('{option}', '{value}', 'min-input-files', '1')"
        self.table.call("rewrite_data_files", f"options => {options}")

    def rename(self) -> None:
        new = "key" if self.key == "k" else "k"
        self.table.sql(f"ALTER TABLE {{t}} RENAME COLUMN {self.key} TO {new}")
        self.key = new

    def add_column(self) -> None:
        self.table.sql(f"ALTER TABLE {{t}} ADD COLUMN m{self.more} string")
        self.more += 1

    def partition(self) -> None:
        change = "DROP" if self.part(0) else "ADD"
        self.table.sql(f"ALTER TABLE {{t}} {change} PARTITION FIELD p")

    def upgrade(self) -> None:
        self.table.sql("ALTER TABLE {t} SET TBLPROPERTIES ('format-version' = '3')")

    def convert(self) -> None:
        self.table.converted(every=True)

    def rewrite(self) -> None:
        with suppress(NotHere, ConvertFirst):
            self.table.rewritten()


@pytest.mark.slow
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize="ICEKIT_EXAMPLES" not in os.environ,
    database=None,
    # A history takes seconds: making a failing one smaller takes longer than reading it.
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(
    st.data(),
    st.sampled_from(["parquet", "orc", "avro"]),
    st.integers(1, 2),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_a_conversion_changes_no_row_of_any_snapshot(
    make: Callable[[], Table],
    data: st.DataObject,
    file_format: str,
    slices: int,
    is_partitioned: bool,
    by_hash: bool,
    is_rewritten: bool,
) -> None:
    chosen = data.draw(st.lists(steps, min_size=3, max_size=7))
    table = make().create("id bigint, k int, p int")
    story = Story(table, format=file_format)
    if is_partitioned:
        story.partition()
    with pytest.MonkeyPatch.context() as patch:
        if by_hash:
            patch.setattr(join, "BROADCAST_KEYS", 0)
            patch.setattr(rewrite_session, "_FEW_APPLIED", 0)
        story.append({0, 1, 2, 3, 4, 5}, 0)
        for name, *arguments in chosen:
            note(f"{name} {arguments}")
            getattr(story, name)(*arguments)
        event(f"{table.equality_deletes()} equality deletes")
        if is_rewritten:
            story.rewrite()
        table.converted(slices=slices, every=True)
    table.sql("DROP TABLE {t} PURGE")


def _values(chosen: set[Any]) -> str:
    return f"SELECT * FROM VALUES {', '.join(f'({each})' for each in sorted(chosen))}"
