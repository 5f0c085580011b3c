"""``icekit admin``: list a catalog's tables, and the clones that killed runs left in it;
``icekit lab`` and ``demo``: example tables of the embedded lake; and ``icekit notebook``.
"""

import builtins
import os
import sys
import time
from pathlib import Path

from icekit.cli.parser import command, connected_lake
from icekit.common.commands.admin import ClonesOptions, DemoOptions, LabOptions, NotebookOptions
from icekit.common.commands.shared import CatalogOptions
from icekit.common.errors import EXIT_HEALTHY, ParameterError, require_extra
from icekit.common.terminal import report_waiting, say
from icekit.common.units import count

_NOTEBOOK = """\
The copies are yours: icekit replaces one when its notebook changes, but only
if you have not changed its cells. Jupyter is told to trust the results stored
in icekit's notebooks, as JupyterLab would otherwise show them without their
styles. On a server: icekit notebook -- --no-browser --port 8888
"""
_CLONES = """\
A trial works on a clone of the table, and drops the clone when it ends. A
process that is killed leaves its clone behind: an entry in the namespace
icekit_scratch and a folder next to the table. Both are harmless, but take
space. icekit removes only clones whose process is known to have ended. It
lists every other clone (made on another host, before a restart, or in another
container) with its age, for you to decide.

Nothing is removed without --remove. If you drop a clone by hand, do it
without PURGE, which would delete the table's files.
"""


@command(
    "lab",
    LabOptions,
    "put example tables with known problems into the embedded lake; needs no Spark and no Java",
)
def unpack_example_tables(options: LabOptions) -> int:
    """Unpack, reset or list the lab's tables; returns the exit status."""
    from icekit.learn.lab import lab_tables, unpack_lab

    if options.list:
        for table in lab_tables().values():
            say(f"lab.{table.name:<28} {table.illness}")
        return EXIT_HEALTHY
    with connected_lake(CatalogOptions(catalog="")) as lake:
        unpack_lab(lake, options.names, all_archives=options.all, reset=options.reset, progress=say)
    return EXIT_HEALTHY


#: Tables of the demo: wrong rows, too many deletes, too many files.
_DEMO = ("unmatched_deletes", "equality_deletes", "small_files")


@command(
    "demo",
    DemoOptions,
    "look at three example tables, and say what to try next; needs no table, no Spark and no Java",
)
def show_demo(_: DemoOptions) -> int:
    """Unpack the lab where it is not there, and print three verdicts; returns the exit status."""
    from icekit.cli.observe import is_color_terminal, terminal_width
    from icekit.learn.lab import NAMESPACE, lab_tables, lake_folder, unpack_lab
    from icekit.maintain.planning.savings import waiting_sentence
    from icekit.show.card import short_card

    with connected_lake(CatalogOptions(catalog="")) as lake:
        with report_waiting("unpacking the lab"):
            unpacked_names = unpack_lab(lake, progress=lambda _: None)
        if unpacked_names:
            say(f"{count(len(unpacked_names), 'example table')} unpacked into {lake_folder(lake)}.")
        for table_name in _DEMO:
            look = lake.look((NAMESPACE, table_name))
            is_postponed = bool(waiting_sentence(look.facts, look.findings, look.thresholds))
            card_text = short_card(
                look.facts,
                look.findings,
                is_postponed=is_postponed,
                color=is_color_terminal(),
                width=terminal_width(),
            )
            say(
                f"\n{lab_tables()[table_name].illness}\n{card_text}", is_painted=is_color_terminal()
            )
    say(
        f"\nNext:  icekit look {NAMESPACE}.{_DEMO[0]}     the whole card of one table\n"
        f"       icekit look                           every table, the worst first\n"
        f"       icekit plan {NAMESPACE}.{_DEMO[1]}      everything worth doing on one"
    )
    return EXIT_HEALTHY


@command("notebook", NotebookOptions, "open the notebooks in JupyterLab", _NOTEBOOK)
def open_notebooks(options: NotebookOptions) -> int:
    """Copy the notebooks, and become JupyterLab."""
    if hasattr(builtins, "get_ipython"):
        raise ParameterError("This is a notebook already. Run `icekit notebook` in a terminal.")
    require_extra("notebook", "icekit notebook")
    from icekit.engine.lake import embedded_path
    from icekit.learn.notebooks import update_copies

    folder = Path(options.folder).resolve()
    for file_name in update_copies(folder):
        say(f"{folder / file_name} is yours and stays. Rename it to get icekit's new version.")
    # A notebook runs in its own folder, and finds the same lake and profiles there.
    os.environ["ICEKIT_LAKE"] = str(embedded_path())
    if Path(".pyiceberg.yaml").exists() and not Path.home().joinpath(".pyiceberg.yaml").exists():
        os.environ.setdefault("PYICEBERG_HOME", str(Path.cwd()))
    os.execv(
        sys.executable,
        [sys.executable, "-m", "jupyterlab", "--allow-root", *options.flags, str(folder)],
    )


@command("admin tables", CatalogOptions, "list the tables of a catalog")
def list_tables(options: CatalogOptions) -> int:
    """List the tables of a catalog; returns the exit status."""
    from icekit.common.sql import display_name

    with connected_lake(options) as lake:
        for name in lake.tables.names():
            say(display_name(name))
    return EXIT_HEALTHY


@command(
    "admin clones",
    ClonesOptions,
    "list the clones that killed runs left behind; with --remove drop them",
    _CLONES,
)
def list_clones(options: ClonesOptions) -> int:
    """Run the command; returns the exit status."""
    from icekit.sandbox.scratch import drop_sql, remove_stale_clones, stale_clones

    with connected_lake(options) as lake:
        all_clones = stale_clones(lake)
        now = time.time_ns() // 1_000_000
        if not all_clones:
            say("There are no stale clones.")
        for stale_clone in all_clones:
            say(stale_clone.summary(now))
            say(f"  {drop_sql(lake.sql_name(stale_clone.table))};")
            folder_text = stale_clone.ownership.scratch if stale_clone.ownership else "unknown"
            say(f"  folder {folder_text}")
        dead_clones = [stale_clone for stale_clone in all_clones if stale_clone.is_dead]
        if options.remove and dead_clones:
            removed_clones = remove_stale_clones(lake, dead_clones)
            say(f"\n{count(len(removed_clones), 'clone')} removed.")
        elif dead_clones:
            say(
                f"\nNothing was removed. --remove drops the {count(len(dead_clones), 'clone')} "
                "whose process has ended."
            )
    return EXIT_HEALTHY
