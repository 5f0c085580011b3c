"""``icekit pack`` and ``unpack``: take a table with you as one file."""

from __future__ import annotations

from pathlib import Path

from icekit.cli.parser import command, connected_lake
from icekit.common.commands.packing import PackOptions, UnpackOptions
from icekit.common.commands.shared import CatalogOptions
from icekit.common.errors import EXIT_HEALTHY
from icekit.common.terminal import report_waiting, say

_PACK = """\
Without --data, the file has the table's metadata: icekit look and icekit plan
say the same about the unpacked table, and no row is in it. Its paths lead to
a neutral folder, so no bucket and no folder of yours is in it. The output
lists what can still be private.

Exit status: 0 packed; 2 misconfigured, or a table that cannot be packed; 3 a
bug in icekit.
"""
_UNPACK = """\
Times move along: a commit is as old as it was when the table was packed.
Nothing is overwritten, and the tables appear when all their files are there.

Exit status: 0 unpacked; 2 misconfigured, or a file that is damaged, unsafe or
no pack; 3 a bug in icekit.
"""


@command(
    "pack",
    PackOptions,
    "write a table into one file, so that its findings can be reproduced elsewhere",
    _PACK,
)
def pack_table(options: PackOptions) -> int:
    """Pack a table; returns the exit status."""
    from icekit.engine.packing import pack

    with connected_lake(options) as lake, report_waiting(f"packing {options.table}"):
        packed_table = pack(
            lake, options.table, Path(options.file), **options.only("data", "redact")
        )
    say(str(packed_table))
    return EXIT_HEALTHY


@command("unpack", UnpackOptions, "put packed tables into the embedded lake", _UNPACK)
def unpack_tables(options: UnpackOptions) -> int:
    """Unpack tables; returns the exit status."""
    from icekit.engine.packing import unpack

    with (
        connected_lake(CatalogOptions(catalog="")) as lake,
        report_waiting(f"unpacking {options.file}"),
    ):
        unpacked_tables = unpack(lake, Path(options.file), options.name)
    for table in unpacked_tables:
        say(str(table))
    say(f"Next:  {unpacked_tables[0].command}")
    return EXIT_HEALTHY
