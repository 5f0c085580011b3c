"""A command of icekit's, given in this process."""

import contextlib
import io
import shlex
from pathlib import Path

from icekit.cli.main import main


def command(*arguments: str) -> tuple[int, str]:
    """Run a command; gives its exit status, and all that was printed."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        try:
            status = main(list(arguments))
        except SystemExit as end:
            status = int(str(end.code))
    return status, printed.getvalue()


def refusals(lines: str) -> str:
    """What a terminal shows of commands that are misconfigured, each of which ends with 2."""
    shown = []
    for line in lines.splitlines():
        status, printed = command(*shlex.split(line))
        assert (status, "Traceback" in printed) == (2, False), printed
        shown.append(f"$ icekit {line}\n{printed}")
    return "\n".join(shown).replace(str(Path.cwd()), "/here")
