"""A forecast of heap as text and as HTML; no pandas."""

from __future__ import annotations

import shlex

from icekit.compact.equality_deletes.forecast import FITS_SHARE, HeapForecast, PartitionHeap
from icekit.compact.equality_deletes.peak import BASE_BYTES
from icekit.secrets import scrub
from icekit.show import html
from icekit.show.lines import aligned
from icekit.units import count, percent, size

#: What the only partition of an unpartitioned table is called.
_WHOLE = "(unpartitioned)"
#: Partitions that text, HTML and picture show.
SHOWN = 10
_KIND = {"fits": ("fine", "✔"), "tight": ("warning", "▲"), "will not fit": ("critical", "✖")}
_HEAD = ("partition", "data files", "deletes on the worst file", "distinct keys", "peak of a read", "peak of a rewrite", "verdict")


def summary(forecast: HeapForecast) -> str:
    """What will happen and what to do, in a few sentences."""
    if forecast.is_empty:
        return f"{forecast.name}: no equality delete applies to any data file, so there is nothing to forecast."
    executor = forecast.executor
    said = (
        f"A stock read of {forecast.name} needs about {size(forecast.read_bytes)} per executor of {count(executor.cores, 'core')}; "
        f"the heap is {size(executor.heap_bytes)}: {forecast.read_verdict}. "
        f"A stock rewrite_data_files needs about {size(forecast.rewrite_bytes)}: {forecast.rewrite_verdict}."
    )
    if forecast.verdict == "fits":
        return said
    return f"{said} {_cores(forecast)}. Converting the deletes needs no such memory: {convert_command(forecast)}"


def _cores(forecast: HeapForecast) -> str:
    cores = forecast.cores_that_fit
    if cores is None:
        return "The length of a key column is only assumed: sample the keys to know what would fit"
    if not cores:
        return "No number of cores would fit"
    return f"Executors of {count(cores, 'core')} with as much heap would fit"


def convert_command(forecast: HeapForecast) -> str:
    """What a person types to turn the equality deletes into position deletes or deletion vectors."""
    catalog = "" if forecast.catalog == "lake" else f" --catalog {shlex.quote(forecast.catalog)}"
    return f"icekit convert {shlex.quote(forecast.name)}{catalog}"


def basis(forecast: HeapForecast) -> tuple[str, ...]:
    """What the figures rest on, a sentence each."""
    if forecast.is_empty:
        return ()
    key = ", ".join(f"{c.name or 'an unknown column'} ({_column(c.type, c.basis, c.heap_bytes)})" for c in forecast.key)
    distinct = (
        f"Distinct keys are estimated from a sample of {count(forecast.sample_file_count, 'delete file')}."
        if forecast.distinct_basis == "sample"
        else "Distinct keys are an upper bound: every delete record counts as a key of its own."
    )
    return (
        f"{count(forecast.delete_record_count, 'equality delete record')} in {count(forecast.delete_file_count, 'file')}, "
        f"by {key}; a full scan loads {forecast.loads:,} of them for {count(forecast.data_file_count, 'data file')}.",
        f"{distinct} Delete records that apply are an upper bound: key bounds may rule some out.",
        f"Fits: at most {percent(FITS_SHARE)} of the heap, of which {size(BASE_BYTES)} are Spark's own.",
    )


def _column(type_name: str, known: str, heap_bytes: float) -> str:
    return f"{type_name + ', ' if type_name else ''}{heap_bytes:.0f} bytes" + ({"assumed": " assumed", "sample": " sampled"}.get(known, ""))


def forecast_text(forecast: HeapForecast) -> str:
    """A forecast as lines for a terminal."""
    lines = [summary(forecast)]
    if not forecast.is_empty:
        rows = [_HEAD, *map(_row, forecast.partitions[:SHOWN])]
        lines += ["", *aligned(rows, left=(0, len(_HEAD) - 1)), *_more(forecast), "", *basis(forecast)]
    return scrub("\n".join(lines))


def forecast_html(forecast: HeapForecast) -> str:
    """A forecast as a card: the sentence, then a table of the worst partitions."""
    kind, mark = ("fine", "✔") if forecast.is_empty else _KIND[forecast.verdict]
    badge = "nothing to forecast" if forecast.is_empty else forecast.verdict
    parts = [
        f'<div class="finding {kind}"><p class="title"><span class="badge">{mark} {html.text(badge)}</span> {html.text(forecast.name)}</p>',
        f"<p>{html.prose(summary(forecast))}</p>",
    ]
    if not forecast.is_empty:
        parts.append(html.table(_HEAD, map(_row, forecast.partitions[:SHOWN]), [False, *[True] * 5, False]))
    parts += [f"<p>{html.prose(line)}</p>" for line in (*_more(forecast), *basis(forecast))]
    return scrub(html.framed(*parts, "</div>"))


def _row(p: PartitionHeap) -> tuple[str, ...]:
    return (
        p.path or _WHOLE,
        f"{p.data_file_count:,}",
        f"{p.deletes_per_file:,}",
        f"{p.distinct_keys:,}",
        size(p.read_bytes),
        size(p.rewrite_bytes),
        p.verdict,
    )


def _more(forecast: HeapForecast) -> tuple[str, ...]:
    left = forecast.partition_count - min(SHOWN, len(forecast.partitions))
    return (f"… and {count(left, 'more partition')}, whose peaks are no higher.",) if left > 0 else ()
