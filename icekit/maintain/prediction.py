"""Predict what an action reads and leaves: files, bytes and seconds."""

from collections.abc import Iterable
from dataclasses import fields
from enum import StrEnum

from icekit.common import frozen
from icekit.common.units import count, span
from icekit.iceberg.filter_opens import FilterOpens

#: What the prediction of a conversion counts: equality delete files before, position delete files
# after.
EQUALITY_DELETE = "equality delete file"


class Certainty(StrEnum):
    """How the number of files that an action leaves compares with its prediction."""

    EXACT = "exact"
    #: Fewer may come out: it is known what a rewrite reads, but not all of what it leaves out.
    AT_MOST = "at most"
    #: More or fewer may come out: only writing the files tells how large they become.
    ABOUT = "about"

    @property
    def number_prefix(self) -> str:
        """``at most ``, before a number; nothing before an exact one."""
        return "" if self is Certainty.EXACT else f"{self} "


@frozen
class Prediction:
    """The files that an action will take and leave.

    ``source`` is ``planner`` if the engine's own planner predicted it, ``facts`` if it was computed
    from the rollup (no JVM bridge), ``metadata`` if the metadata alone decides. ``seconds`` is None
    without past runs of about this size; ``shuffle_bytes`` is 0 for a rewrite that does not sort.
    ``file_opens_saved`` counts opens that a full scan no longer needs: data files that are removed,
    and delete files that are no longer opened for each data file. ``unit`` is what ``files_in`` and
    ``files_out`` count: ``file``, or ``delete file``, ``manifest``, ``snapshot`` or ``orphan`` for
    maintenance; for a conversion ``equality delete file``, and ``files_out`` is then the maximum
    number of position delete files (deletion vectors in format version 3) that replace them.
    ``certainty`` is that of ``files_out``: ``at most``, because equality deletes apply, and nobody
    knows before a rewrite how many rows they delete; because position deletes may be of data files
    that are gone; or because rows go into an unknown number of partitions; ``about`` from the
    facts, for sorted rows, and where a file may become larger than it should be. ``bytes_out`` is
    always an estimate. ``rows_in`` are the rows of ``files_in`` before deletes. ``data_files_read``
    are the data files that a conversion also reads. ``filters`` is what filters on columns with
    bounds open of the files before and after.
    """

    files_in: int = 0
    bytes_in: int = 0
    files_out: int = 0
    bytes_out: int = 0
    delete_files_removed: int = 0
    groups: int = 0
    shuffle_bytes: int = 0
    seconds: float | None = None
    file_opens_saved: int = 0
    source: str = "facts"
    unit: str = "file"
    certainty: Certainty = Certainty.EXACT
    rows_in: int = 0
    data_files_read: int = 0
    filters: tuple[FilterOpens, ...] = ()

    @property
    def slower_filters(self) -> tuple[FilterOpens, ...]:
        """The filters that open more files afterwards."""
        return tuple(filter_opens for filter_opens in self.filters if filter_opens.is_worse)

    @property
    def unit_out(self) -> str:
        """The unit of ``files_out``."""
        return "position delete file" if self.unit == EQUALITY_DELETE else self.unit

    @property
    def change_text(self) -> str:
        """``9 files → 1 file``."""
        after_text = f"{self.certainty.number_prefix}{count(self.files_out, self.unit_out)}"
        return f"{count(self.files_in, self.unit)} → {after_text}"

    @property
    def duration_suffix(self) -> str:
        """``; about 3 minutes``, to end a sentence; empty if no past run says."""
        return "" if self.seconds is None else f"; about {span(max(self.seconds, 1.0) * 1000)}"

    @property
    def budget_figures(self) -> tuple[int, int, int]:
        """The bytes, files and rows that are read: what a budget limits."""
        return self.bytes_in, self.files_in, self.rows_in


def least_certain(certainties: Iterable[Certainty]) -> Certainty:
    """The certainty of a sum."""
    return max(certainties, key=list(Certainty).index)


def total_of(predictions: Iterable[Prediction], unit: str = "file") -> Prediction:
    """The sum of those predictions that count this unit."""
    counted_predictions = [p for p in predictions if p.unit == unit] or [
        Prediction(seconds=0.0, unit=unit)
    ]
    known_seconds = [p.seconds for p in counted_predictions if p.seconds is not None]
    sources = {p.source for p in counted_predictions}
    sums_by_field = {
        prediction_field.name: sum(getattr(p, prediction_field.name) for p in counted_predictions)
        for prediction_field in fields(Prediction)
        if prediction_field.type is int
    }
    return Prediction(
        seconds=sum(known_seconds) if len(known_seconds) == len(counted_predictions) else None,
        source=sources.pop() if len(sources) == 1 else "mixed",
        unit=unit,
        certainty=least_certain(p.certainty for p in counted_predictions),
        **sums_by_field,
    )
