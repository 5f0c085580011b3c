"""From what was measured of planning and storage to settings. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from icekit.facts.model import TableFacts
from icekit.sql import Identifier, call, display_name
from icekit.tune.answer import SESSION, Advice, overriding, to_set
from icekit.tune.planning.measure import (
    AUTO,
    DISTRIBUTED,
    GETS_PER_SECOND,
    LEAST_RESULT_BYTES,
    LOCAL,
    PUTS_PER_SECOND,
    Circumstances,
    Encoding,
    Rewritten,
    Storage,
    Timing,
    decide,
    is_too_small_a_result,
)
from icekit.units import count, percent, size

#: A choice: planning in another place must save this share of the time, and this many seconds, or it is lost in noise.
MODE_GAIN, MODE_SECONDS = 0.25, 1.0
#: A choice: rewriting manifests must spare a query this share of those it opens, and this many.
MANIFEST_GAIN, MANIFESTS_SPARED = 0.5, 8
#: A choice: another encoding must save this share of the bytes, and slow no scan or write by more than this share.
BYTES_GAIN, SLOWER = 0.15, 0.1


def planning_mode(table: Identifier, facts: TableFacts, c: Circumstances, timings: Sequence[Timing]) -> tuple[Advice, ...]:
    """Where data manifests are planned, and where they ought to be; a setting of the session goes first."""
    name = "read.data-planning-mode"
    decision = decide(c)[0]
    now = f"{(c.data_mode.value or AUTO).lower()} ({decision.place})"
    why = f"planned {'in the driver' if decision.place == LOCAL else 'by the executors'}: {decision.reasons[0]}"
    measured = {t.name: t.seconds for t in timings}
    if not measured:
        return (Advice(name, now, now, f"Leave it as it is: {why}. It was not measured."),)
    here, there = measured[decision.place], measured[DISTRIBUTED if decision.place == LOCAL else LOCAL]
    said = f"a full scan is planned in {measured[LOCAL]:.2f} s in the driver and in {measured[DISTRIBUTED]:.2f} s by the executors"
    if here - there < max(MODE_SECONDS, MODE_GAIN * here):
        return (Advice(name, now, now, f"Leave it as it is: {why}; {said}."),)
    better = DISTRIBUTED if decision.place == LOCAL else LOCAL
    if is_too_small_a_result(c):
        # A setting of the cluster, which no statement changes.
        wanted = size(LEAST_RESULT_BYTES)
        told = Advice(
            "spark.driver.maxResultSize",
            size(c.max_result_bytes),
            wanted,
            f"{why[:1].upper()}{why[1:]}; {said}. Start the session with more.",
        )
        return (told,)
    evidence = f"{said[:1].upper()}{said[1:]}; it is {why}."
    # Both kinds were measured in one place, and are set to it; named after the first.
    properties = {**({"read.delete-planning-mode": better} if c.deletes.count else {}), name: better}
    found = [to_set(table, facts.properties, properties, current=now, evidence=evidence, verified=f"{said}.")]
    decides = [mode.decides for mode in (c.data_mode, c.delete_mode) if mode.decides is not None and mode.decides.where == SESSION]
    return (*found, *(overriding(link, "") for link in decides))


def worker_threads(c: Circumstances, timings: Sequence[Timing]) -> tuple[Advice, ...]:
    """Whether more threads in the driver plan faster; no statement sets them, so only a clear gain is named."""
    if not timings or decide(c)[0].place != LOCAL:
        return ()
    # What was tried is up to the number in force, or just above it.
    seconds = {int(t.name): t.seconds for t in timings}
    here = seconds[max((n for n in seconds if n <= c.threads), default=min(seconds))]
    best = min(seconds, key=lambda n: seconds[n])
    if best <= c.threads or here - seconds[best] < max(MODE_SECONDS, MODE_GAIN * here):
        return ()
    evidence = (
        f"Planning a full scan takes {here:.2f} s with {count(c.threads, 'thread')} of the driver and {seconds[best]:.2f} s with {best}: it waits for storage. "
        f"Start the session with spark.driver.extraJavaOptions=-Diceberg.worker.num-threads={best}."
    )
    return (Advice("iceberg.worker.num-threads", str(c.threads), str(best), evidence, verified="planned with that many threads."),)


def manifests(table: Identifier, facts: TableFacts, tried: Rewritten | None) -> Advice:
    """Whether rewriting the manifests pays."""
    name, m = "manifests", facts.manifests
    now = f"{m.data_count:,} of {size(m.data_bytes)}"
    if tried is None:
        return Advice(name, now, now, "Leave them as they are: rewriting them was not tried.")
    whole = tried.reads[0]
    after = f"{tried.count_after:,} of {size(tried.bytes_after)}"
    asked = "a query" if len(tried.reads) > 1 else "a full scan"
    said = (
        f"{asked} opens {tried.mean_before:,.3g} of {tried.count_before:,} data manifests now and {tried.mean_after:,.3g} of {tried.count_after:,} "
        "once they are rewritten by partition"
    )
    timed = (
        f"on a clone a full scan was planned in {whole.before.seconds:.2f} s before and {whole.after.seconds:.2f} s after, "
        f"and opened the same {count(whole.after.data_files, 'data file')}."
    )
    spared = tried.mean_before - tried.mean_after
    if spared < max(MANIFESTS_SPARED, MANIFEST_GAIN * tried.mean_before):
        return Advice(name, now, now, f"Leave them as they are: {said}.", verified=timed)
    sql = call(table[0], "rewrite_manifests", table=display_name(facts.table))
    return Advice(name, now, after, f"{said[:1].upper()}{said[1:]}; it touches no data file.", sql, timed)


def object_storage(table: Identifier, facts: TableFacts, s: Storage) -> Advice:
    """Whether hashed paths would spread requests."""
    name = "write.object-storage.enabled"
    now = str(s.is_enabled).lower()
    if s.store is None:
        return Advice(name, now, now, f"Leave it as it is: the table lies on {s.scheme}:, where no requests are throttled by prefix.")
    said = (
        f"{percent(s.largest_prefix_share)} of {count(s.file_count, 'file')} lie under one prefix, {percent(s.hashed_share)} have a hash in their path; this session's "
        f"task slots make {s.gets_per_second:,.0f} requests a second at most ({s.store} takes {GETS_PER_SECOND:,} reads and {PUTS_PER_SECOND:,} writes for one prefix before it splits it), "
        f"and a recent commit added up to {count(s.puts_per_commit, 'file')}"
    )
    if s.is_enabled or not s.is_at_risk:
        return Advice(name, now, now, f"Leave it as it is: {said}.")
    return to_set(
        table,
        facts.properties,
        {name: "true"},
        current=now,
        evidence=f"{said[:1].upper()}{said[1:]}.",
        breaks="new files no longer lie in folders by partition that people may browse; files that are there stay where they are until they are rewritten",
    )


def encoding(table: Identifier, facts: TableFacts, tried: Sequence[Encoding], sampled_bytes: int) -> Advice:
    """Whether another codec, level, row group or page size is worth it."""
    name = "write.parquet.compression-codec"
    if not tried:
        now = facts.setting(name)
        return Advice(name, now, now, "Leave it as it is: no other way to write was tried.")
    here = tried[0]
    fine = [
        e
        for e in tried[1:]
        if e.size_in_bytes <= here.size_in_bytes * (1 - BYTES_GAIN)
        and e.scan_seconds <= here.scan_seconds * (1 + SLOWER)
        and e.write_seconds <= here.write_seconds * (1 + SLOWER)
    ]
    smallest = min(tried, key=lambda e: e.size_in_bytes)
    sample = f"of a sample of {size(sampled_bytes)}"
    if not fine:
        gain = 1 - smallest.size_in_bytes / here.size_in_bytes if here.size_in_bytes else 0.0
        said = (
            f"{sample}, the smallest ({smallest.name}) saves {percent(gain)} of the bytes, written in {smallest.write_seconds:.2f} s instead of {here.write_seconds:.2f} and read in "
            f"{smallest.scan_seconds:.2f} s instead of {here.scan_seconds:.2f}; {percent(BYTES_GAIN)} without writing or reading slower by {percent(SLOWER)} are asked for"
        )
        return Advice(
            name,
            here.name,
            here.name,
            f"Leave it as it is: {said}." if smallest is not here else "Leave it as it is: nothing that was tried is smaller.",
        )
    best = min(fine, key=lambda e: e.size_in_bytes)
    gain = 1 - best.size_in_bytes / here.size_in_bytes
    said = (
        f"{size(here.size_in_bytes)} became {size(best.size_in_bytes)} ({sample}), written in {best.write_seconds:.2f} s instead of {here.write_seconds:.2f} "
        f"and read in {best.scan_seconds:.2f} s instead of {here.scan_seconds:.2f}"
    )
    return to_set(
        table,
        facts.properties,
        dict(best.properties),
        current=here.name,
        evidence=f"{best.name} saves {percent(gain)} of the bytes; files that are there keep theirs until they are rewritten.",
        verified=f"{said}.",
    )
