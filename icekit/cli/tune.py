"""``icekit tune`` and ``review-merge``: measure on clones and samples how a table should be written
and laid out.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from icekit.cli.parser import command, connected_lake
from icekit.cli.run import save_result
from icekit.common.commands.tune import QUESTION_OPTIONS, ReviewMergeOptions
from icekit.common.errors import EXIT_HEALTHY, EXIT_UNHEALTHY
from icekit.common.terminal import say
from icekit.tune import QUESTIONS

# For the questions that ask what queries filter by.
_FILTERS = """\
State what queries filter by (--filter, also a whole query), read it from a
Spark event log, or declare it in the table property icekit.filter-columns.

"""
# Closes the help of each question.
_TUNE = """\
The answer is the measurements and one script to paste, with its undo, or "no
change". icekit only reads the table, and sets nothing.

Exit status: 0 answered (also when the answer is "no change"), 2
misconfigured, 3 a bug in icekit.
"""
_WRITE_MODE = """\
A DELETE, UPDATE or MERGE either rewrites changed files (copy-on-write:
expensive writes, no cost for reads) or writes deletes next to them
(merge-on-read: cheap writes, more expensive reads, occasional compaction).
This command tries both on zero-copy clones of the table, with your statement
(--statement-file FILE, or - for standard input) or with synthetic ones shaped
like the table's history. It measures commits, scans and compaction, and
reports which mode costs less at the table's reads per commit, at how many
reads the two break even, and what to set.

"""
_REVIEW_MERGE = """\
The file holds one MERGE statement (- reads it from standard input). Spark
plans it and Iceberg plans its scans; neither runs it. The review shows which
files of the target are opened, which filters reach it, what is shuffled, and
whether a storage-partitioned join would avoid that or what it lacks. If the
values in the source allow it, the review offers the same statement with a
narrower ON, and a query that must return 0 immediately before you run it.

For this, icekit runs some aggregations on the source; of the target it reads
only metadata. With --prove it runs the statement and the narrower one on
zero-copy clones, which it then removes: it compares rows and measures bytes,
shuffle and time.

Names without a catalog are looked up in --catalog. Exit status: 0 reviewed; 1
with --prove, the rows differ, a statement failed, or the budget ran out; 2
misconfigured, or a statement that cannot be reviewed; 3 a bug in icekit.
"""


def tune(question: str, options: Any) -> int:
    """Answer a question; returns the exit status."""
    return _ask_and_print(
        options,
        lambda lake, arguments: lake.tune(question, options.table, progress=say, **arguments),
    )


_HELP_BY_QUESTION = {
    "file-sizes": "",
    "metrics-columns": _FILTERS,
    "layout": _FILTERS,
    "write-mode": _WRITE_MODE,
    "planning": _FILTERS,
}
for _name, _what in QUESTIONS.items():
    _help = _HELP_BY_QUESTION[_name] + _TUNE
    command(f"tune {_name}", QUESTION_OPTIONS[_name], _what, _help)(partial(tune, _name))


@command(
    "review-merge",
    ReviewMergeOptions,
    "explain what a MERGE reads and shuffles without running it; offers a narrower ON",
    _REVIEW_MERGE,
)
def review_merge(options: ReviewMergeOptions) -> int:
    """Review a MERGE; returns the exit status."""
    return _ask_and_print(
        options, lambda lake, arguments: lake.review_merge(progress=say, **arguments)
    )


def _ask_and_print(options: Any, ask: Callable[..., Any]) -> int:
    from icekit.notebook import question_arguments

    arguments = question_arguments(options)
    with connected_lake(options) as lake:
        answer = ask(lake, arguments)
        say(f"\n{answer.text()}")
        save_result(answer, options.output)
    return EXIT_UNHEALTHY if answer.failure else EXIT_HEALTHY
