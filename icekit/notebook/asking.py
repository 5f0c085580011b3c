"""Ask what a notebook's parameters ask for; an empty text or a zero stands for what was not asked."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icekit.api import Lake, connect
from icekit.diagnose.findings import Thresholds
from icekit.errors import ParameterError
from icekit.facts.collect import Collector
from icekit.facts.model import TableFacts
from icekit.notebook.setting_up import require

if TYPE_CHECKING:
    from icekit.compact import Calibration, Policy
    from icekit.tune.merge import Review
    from icekit.tune.write_mode import WriteModeChoice


def connected(catalog: str) -> Lake:
    """The catalog that a notebook's parameter names; an empty text is the embedded lake."""
    require("catalog", catalog, str, "a text")
    return connect(catalog or None)


def observe(
    catalog: str,
    table: str,
    thresholds: Thresholds,
    *,
    ref: str | int = "",
    filter_columns: Sequence[str] = (),
    collector: Collector = "auto",
    storage: bool = False,
    facts_file: str = "",
) -> tuple[Lake, TableFacts]:
    """Connect and observe, or take facts that a report has collected for several tables at once."""
    given = {"catalog": catalog, "table": table, "collector": collector, "facts_file": facts_file}
    for name, value in given.items():
        require(name, value, str, "a text")
    require("storage", storage, bool, "true or false (with papermill: -p, or a parameters file)")
    require("filter_columns", filter_columns, (list, tuple), "a list (with papermill: -y 'filter_columns: [a, b]')")
    lake = connect(catalog or None)
    if facts_file:
        from icekit.diagnose.document import load_facts

        return lake, load_facts(Path(facts_file))
    facts = lake.observe(
        table,
        ref=ref or None,
        collector=collector,
        size_ratios=thresholds.size_ratios,
        filter_columns=list(filter_columns) or None,
        storage=storage,
    )
    return lake, facts


def policy(given: Mapping[str, Any]) -> Policy:
    """The policy that a notebook's parameters set; raises ParameterError for what it cannot take."""
    from icekit.compact.model import Policy

    require("policy", given, dict, "a mapping (with papermill: -y 'policy: {scope: major}')")
    return Policy.of(given)


def sampled(text: str) -> int | None:
    """How many partitions of a commit are proved: None for all (``full``), 0 for ``none``, or their number."""
    if str(text) in {"full", "none"}:
        return None if text == "full" else 0
    if str(text).isdecimal() and int(text) > 0:
        return int(text)
    raise ParameterError(f"prove is {text!r}; use full, none, or the number of partitions of each commit.")


def calibration(lake: Lake, ledger: str = "") -> Calibration:
    """How near the predictions in the ledger came, over all tables."""
    from icekit.compact import calibration as compared
    from icekit.compact.ledger import opened

    with opened(ledger, lake) as book:
        return compared(book.outcomes())


def erased(lake: Lake, table: str, predicate: str) -> Any:
    """Where rows of a predicate can still be read, or a sentence that nobody asked."""
    if not predicate:
        return "No predicate was given: whose rows must be gone was not asked."
    from icekit.prove import prove_erased

    return prove_erased(lake, table, predicate)


def stock(lake: Lake, table: str, executor: str, limit: int) -> Any:
    """A stock rewrite on such an executor's heap, or a sentence that none was asked for or can be run."""
    from icekit.compact.equality_deletes import stock_rewrite

    require("stock_limit", limit, int, "a number of seconds (with papermill: -p)")
    if not limit or not executor:
        return "No stock rewrite was run: stock_limit is 0, or no executor is given."
    try:
        return stock_rewrite(lake, table, executor, limit_seconds=limit)
    except ParameterError as problem:
        return f"No stock rewrite was run: {problem}"


def read_now(lake: Lake, table: str, wanted: bool) -> Any:
    """The rows of a table with its equality deletes resolved on a clone, or a sentence that nobody asked."""
    require("read_now", wanted, bool, "true or false (with papermill: -p, or a parameters file)")
    if not wanted:
        return "The table was not read: read_now is false."
    from icekit.resolve.convert import resolved

    started = time.monotonic()
    # Not lake.read_resolved: a kernel may be ended without a word, and would leave the clone behind.
    with resolved(lake, lake.identifier(table), say=print) as rows:
        return f"{rows.count():,} rows, {len(rows.columns)} columns, resolved and counted in {time.monotonic() - started:.0f} s"


def review(catalog: str, sql: str, sql_file: str = "", *, prove: bool = False) -> Review:
    """Review the MERGE that a notebook's parameters name: a text, or a file that holds it."""
    for name, value in {"catalog": catalog, "sql": sql, "sql_file": sql_file}.items():
        require(name, value, str, "a text")
    require("prove", prove, bool, "true or false (with papermill: -p, or a parameters file)")
    if sql_file:
        from icekit.tune.statement import read_file

        sql = read_file(sql_file)
    return connect(catalog or None).review_merge(sql, prove=prove)


def try_write_modes(lake: Lake, table: str, **options: Any) -> WriteModeChoice:
    """Choose a write mode by a notebook's parameters: an empty text, or a zero where it means nothing, stands for the default."""
    unset = {"share", "file_share", "reads_per_commit", "reads_per_day", "compact_every"}
    given = {name: value for name, value in options.items() if value != "" and not (name in unset and value == 0)}
    return lake.choose_write_mode(table, **given)
