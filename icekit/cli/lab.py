"""``icekit lab``: the unhealthy example tables of the embedded lake."""

from __future__ import annotations

from icekit.cli.declared import command, connected
from icekit.errors import EXIT_HEALTHY, ParameterError
from icekit.options.commands import LabOptions
from icekit.terminal import say


@command("lab", LabOptions, "build the lab's unhealthy example tables in the embedded lake")
def build_lab(options: LabOptions) -> int:
    """Build, reset or list the lab's tables; returns the exit status."""
    from icekit.lab import TABLES, build, reset

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
            build(lake, names, progress=say, **options.only("scale", "rebuild"))
    return EXIT_HEALTHY
