"""``icekit admin``: list a catalog's tables, and the clones that killed runs left in it;
``icekit lab``: the unhealthy example tables of the embedded lake; and ``icekit notebook``.
"""

import builtins
import os
import sys
import time
from pathlib import Path

from icekit.cli.declared import command, connected
from icekit.common.commands import ClonesOptions, LabOptions, NotebookOptions, OfCatalog
from icekit.common.errors import EXIT_HEALTHY, ParameterError, require_extra
from icekit.common.terminal import say
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


@command("lab", LabOptions, "build the lab's unhealthy example tables in the embedded lake")
def build_lab(options: LabOptions) -> int:
    """Build, reset or list the lab's tables; returns the exit status."""
    from icekit.learn.lab import TABLES, build, reset

    if options.rebuild + options.reset + options.list > 1:
        raise ParameterError("Give only one of --rebuild, --reset and --list.")
    if options.list:
        for table in TABLES.values():
            say(f"lab.{table.name:<28} {table.illness}")
        return EXIT_HEALTHY
    names = options.names or None
    with connected(options) as lake:
        if options.reset:
            reset(lake, names, progress=say)
        else:
            build(lake, names, progress=say, rebuild=options.rebuild)
    return EXIT_HEALTHY


@command("notebook", NotebookOptions, "open the notebooks in JupyterLab", _NOTEBOOK)
def open_notebooks(options: NotebookOptions) -> int:
    """Copy the notebooks, and become JupyterLab."""
    if hasattr(builtins, "get_ipython"):
        raise ParameterError("This is a notebook already. Run `icekit notebook` in a terminal.")
    require_extra("notebook", "icekit notebook")
    from icekit.engine.lake import embedded_path
    from icekit.learn.notebooks import copied

    folder = Path(options.folder).resolve()
    for name in copied(folder):
        say(f"{folder / name} is yours and stays. Rename it to get icekit's new version.")
    # A notebook runs in its own folder, and finds the same lake and profiles there.
    os.environ["ICEKIT_LAKE"] = str(embedded_path())
    if Path(".pyiceberg.yaml").exists() and not Path.home().joinpath(".pyiceberg.yaml").exists():
        os.environ.setdefault("PYICEBERG_HOME", str(Path.cwd()))
    os.execv(
        sys.executable,
        [sys.executable, "-m", "jupyterlab", "--allow-root", *options.flags, str(folder)],
    )


@command("admin tables", OfCatalog, "list the tables of a catalog")
def tables(options: OfCatalog) -> int:
    """List the tables of a catalog; returns the exit status."""
    from icekit.common.sql import display_name

    with connected(options) as lake:
        for name in lake.tables.names():
            say(display_name(name))
    return EXIT_HEALTHY


@command(
    "admin clones",
    ClonesOptions,
    "list the clones that killed runs left behind; with --remove drop them",
    _CLONES,
)
def clones(options: ClonesOptions) -> int:
    """Run the command; returns the exit status."""
    from icekit.sandbox.scratch import drop_sql, remove_stale, stale_clones

    with connected(options) as lake:
        listed = stale_clones(lake)
        now = time.time_ns() // 1_000_000
        if not listed:
            say("There are no stale clones.")
        for stale in listed:
            say(stale.line(now))
            say(f"  {drop_sql(lake.sql_name(stale.table))};")
            folder = stale.whose.scratch if stale.whose else "unknown"
            say(f"  folder {folder}")
        dead = [stale for stale in listed if stale.is_dead]
        if options.remove and dead:
            removed = remove_stale(lake, dead)
            say(f"\n{count(len(removed), 'clone')} removed.")
        elif dead:
            say(
                f"\nNothing was removed. --remove drops the {count(len(dead), 'clone')} whose "
                "process has ended."
            )
    return EXIT_HEALTHY
