"""Try an advisory size: what the one in force makes, what the measured ratio says, and whether that comes true."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from icekit.sql import Identifier, identifier, set_properties
from icekit.tune.advisory_size.chain import DISTRIBUTION_SESSION, ICEBERG_SESSION
from icekit.tune.advisory_size.recommend import Candidate, best, next_candidate
from icekit.tune.advisory_size.source import Source
from icekit.tune.advisory_size.written import Written, write
from icekit.tune.budget import Budget, BudgetSpent
from icekit.units import count, size

if TYPE_CHECKING:
    from icekit.catalog import Lake
    from icekit.facts.model import TableFacts

_TARGET, _ROW_GROUP = "write.target-file-size-bytes", "write.parquet.row-group-size-bytes"


@dataclass(frozen=True, slots=True)
class SizeTrial:
    """Commits of the same rows: ``before`` as things are, ``base`` with the distribution advised, then each size tried.

    ``target_bytes`` is the target they were made under: smaller than the table's own where a sample
    holds too few files of that. ``stopped`` says why sizes were left untried.
    """

    source: Source
    target_bytes: int
    before: Written
    base: Written
    tried: tuple[tuple[Candidate, Written], ...]
    stopped: str | None = None

    @property
    def chosen(self) -> tuple[Candidate | None, Written]:
        """The size that came nearest to the target, None for the one in force, and what it made."""
        size_in_bytes, written = best([(None, self.base), *((c.size_in_bytes, w) for c, w in self.tried)])
        return next((c for c, _ in self.tried if c.size_in_bytes == size_in_bytes), None), written


def try_sizes(
    lake: Lake,
    facts: TableFacts,
    place: Identifier,
    source: Source,
    target_bytes: int,
    distribution: str | None,
    advisory_bytes: int,
    budget: Budget,
    progress: Callable[[str], None],
) -> SizeTrial:
    """Write the rows as things are, then with ``distribution`` (None: no other), then with each size that the ratio says.

    ``advisory_bytes`` is the size in force: under a smaller target it shrinks with it.
    """
    now: dict[str, str] = {}
    if target_bytes != facts.target_bytes:
        group = facts.int_setting(_ROW_GROUP) * target_bytes // facts.target_bytes
        lake.spark.sql(set_properties(lake.sql_name(place), {_TARGET: str(target_bytes), _ROW_GROUP: str(max(group, 1))}))
        now = {ICEBERG_SESSION: str(max(1, advisory_bytes * target_bytes // facts.target_bytes))}
    sql = insert(lake, place, source)

    def made(settings: Mapping[str, str]) -> Written:
        return write(lake, place, sql, target_bytes, budget, settings=settings, expected_bytes=source.size_in_bytes)

    before = made(now)
    progress(f"as it is: {said(before)}")
    under = {DISTRIBUTION_SESSION: distribution} if distribution else {}
    base = made({**now, **under}) if under else before
    tried: list[tuple[Candidate, Written]] = []
    stopped = None
    try:
        while (candidate := next_candidate([(None, base), *((c.size_in_bytes, w) for c, w in tried)])) is not None:
            written = made({**under, ICEBERG_SESSION: str(candidate.size_in_bytes)})
            tried.append((candidate, written))
            progress(f"advisory size {size(candidate.size_in_bytes)}: {said(written)}")
    except BudgetSpent as error:
        stopped = str(error)
    return SizeTrial(source, target_bytes, before, base, tuple(tried), stopped)


def insert(lake: Lake, place: Identifier, source: Source) -> str:
    """The statement that writes a trial's rows."""
    return f"INSERT INTO {identifier(*lake.sql_name(place))} {source.sql}"


def said(written: Written) -> str:
    """Files and their mean, in words."""
    mean = written.enough_mean or written.mean_bytes
    return f"{count(written.files, 'file')}, {size(mean)} on average" if mean is not None else "no file"
