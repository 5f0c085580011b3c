"""Try metrics on a clone: the entries of its manifests are written anew, as they are and as advised, and planned with.

No data file is read whole or written. The advised metrics are what Iceberg's own writer would take under the advised
properties, from the footers of the very files that are there (:mod:`.footers`), so that files and layout stay the same and
only the metrics differ. A rewrite of manifests alone (``rewrite_manifests``) could not do it: it copies entries with the metrics they have.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from icekit.engine.bridge import elements, load_now
from icekit.engine.planner import plan_scan
from icekit.facts.collect import observe
from icekit.facts.model import TableFacts
from icekit.sql import set_properties
from icekit.tune.budget import Budget, BudgetSpent
from icekit.tune.filters.read import names_ever
from icekit.tune.metrics_columns.footers import Footers
from icekit.tune.metrics_columns.manifest_bytes import layout
from icekit.tune.metrics_columns.model import FilterReads, Manifests, Trial
from icekit.tune.place import Place, places
from icekit.units import count, percent

if TYPE_CHECKING:
    from icekit.catalog import Lake

#: Data files whose entries are written anew.
MOST_FILES = 1_000
#: Plans of a full scan, of which the shortest counts, and the seconds after which no more are made.
_REPEATS, _SECONDS = 7, 5.0


def try_metrics(
    lake: Lake,
    facts: TableFacts,
    properties: Mapping[str, str],
    filters: Sequence[tuple[str, str, float]],
    *,
    sample_bytes: int,
    budget: Budget,
    progress: Callable[[str], None],
) -> Trial:
    """What ``properties`` make of a clone's manifests and of the files that ``filters`` (text, SQL, weight) read there.

    On a table of more than a thousand data files the entries of so many are written anew, and the rest stays as it is.
    """
    started = time.monotonic()
    total = facts.data.file_count
    done = 0
    before: Manifests | None = None
    after: Manifests | None = None
    read: list[FilterReads] = []
    is_sample = False
    stopped: str | None = None
    try:
        with places(lake, facts, 1, sample_bytes=sample_bytes, always_sample=False, budget=budget, progress=progress) as stack:
            place = stack.places[0]
            is_sample = place.is_sample
            if is_sample:
                total = observe(lake, place.table, collector="spark").data.file_count
            entries = _Entries(lake, place, budget)
            before = entries.write(by_settings=False)
            done = entries.number
            first = {sql: entries.reads(sql) for _, sql, _ in filters}
            if properties:
                lake.spark.sql(set_properties(lake.sql_name(place.table), dict(properties)))
            after = entries.write(by_settings=True)
            read = [FilterReads(text, weight, first[sql], entries.reads(sql)) for text, sql, weight in filters]
    except BudgetSpent as error:
        stopped = str(error)
    trial = Trial(done, total, before, after, tuple(read), time.monotonic() - started, is_sample, stopped)
    if trial.shrinks is not None:
        progress(
            f"tried on a clone: entries of {count(done, 'data file')}, manifests {percent(abs(trial.shrinks))} {'smaller' if trial.shrinks > 0 else 'larger'}"
        )
    return trial


class _Entries:
    """The entries of some manifests of a clone, which can be written in their place with other metrics."""

    def __init__(self, lake: Lake, place: Place, budget: Budget) -> None:
        self._lake, self._place, self._budget = lake, place, budget
        self._name = lake.sql_name(place.table)
        jvm: Any = lake.spark._jvm
        self._iceberg = jvm.org.apache.iceberg
        self.number = 0
        self._current: list[Any] = []
        self._chosen: list[list[Any]] = []
        self._rest: list[list[Any]] = []
        self._read()

    def write(self, *, by_settings: bool) -> Manifests:
        """Put the chosen entries into manifests of their own, with the metrics they have or those of the clone's settings."""
        table = load_now(self._lake.spark, self._name)
        footers = Footers(self._lake, table)
        config = None
        if by_settings:
            now = observe(self._lake, self._place.table)
            config = footers.config(names_ever(self._lake, now)[0], {c.field_id: c.metrics_mode for c in now.columns})

        def measured(file: Any) -> Any:
            self._budget.check()
            if config is None or str(file.format()) != "PARQUET":
                return file
            copied = self._iceberg.DataFiles.builder(table.specs().get(file.specId())).copy(file)
            return copied.withMetrics(footers.metrics(str(file.location()), config)).build()

        made = [self._manifest(table, [(file, measured(file)) for file in files]) for files in self._chosen if files]
        kept = [self._manifest(table, [(file, file) for file in files]) for files in self._rest if files] if config is None else []
        rewrite = table.rewriteManifests()
        for old in self._current:
            rewrite.deleteManifest(old)
        for new in (*made, *kept):
            rewrite.addManifest(new)
        rewrite.commit()
        # Those that hold the rest stay as they are from now on.
        paths = {str(m.path()) for m in made}
        self._current = [m for m in self._manifests(load_now(self._lake.spark, self._name)) if str(m.path()) in paths]
        size = sum(int(m.length()) for m in made)
        self._budget.bytes_written += size
        header = sum(layout(self._bytes(table, str(m.path())))[0] for m in made)
        return Manifests(size, header, self._planning())

    def reads(self, where: str) -> int:
        """Data files that a filter reads of the clone as it is now."""
        self._budget.check()
        return plan_scan(self._lake.spark, self._name, where).data_files

    def _planning(self) -> float:
        """Seconds to plan a full scan: the shortest of some."""
        self._budget.check()
        found = [plan_scan(self._lake.spark, self._name).seconds]
        while len(found) < _REPEATS and sum(found) < _SECONDS:
            found.append(plan_scan(self._lake.spark, self._name).seconds)
        return min(found)

    def _read(self) -> None:
        """Take whole manifests until there are enough files; of the last one some, and the rest is kept apart."""
        table = load_now(self._lake.spark, self._name)
        for manifest in self._manifests(table):
            if self.number >= MOST_FILES:
                break
            self._current.append(manifest)
            chosen: list[Any] = []
            rest: list[Any] = []
            reader = self._iceberg.ManifestFiles.read(manifest, table.io(), table.specs())
            for entry in elements(reader):
                self._budget.check()
                (chosen if self.number + len(chosen) < MOST_FILES else rest).append(entry)
            reader.close()
            self.number += len(chosen)
            self._chosen.append(chosen)
            self._rest.append(rest)

    @staticmethod
    def _manifests(table: Any) -> list[Any]:
        return list(elements(table.currentSnapshot().dataManifests(table.io())))

    def _manifest(self, table: Any, files: Sequence[tuple[Any, Any]]) -> Any:
        """Write files (as they are, and as they are to be written) into a manifest beside the clone's own."""
        operations = table.operations()
        path = operations.metadataFileLocation(f"{uuid.uuid4()}-trial.avro")
        version, spec = operations.current().formatVersion(), table.specs().get(files[0][0].specId())
        writer = self._iceberg.ManifestFiles.write(version, spec, table.io().newOutputFile(path), None)
        snapshot = table.currentSnapshot().snapshotId()
        for source, file in files:
            sequence = source.dataSequenceNumber()
            writer.existing(file, snapshot, 0 if sequence is None else sequence, source.fileSequenceNumber())
        writer.close()
        return writer.toManifestFile()

    @staticmethod
    def _bytes(table: Any, path: str) -> bytes:
        stream = table.io().newInputFile(path).newStream()
        try:
            return bytes(stream.readAllBytes())
        finally:
            stream.close()
