"""A command of icekit's, given in this process."""

import contextlib
import io

from icekit.cli.main import main


def status_of(*arguments: str) -> int:
    """Run a command; gives its exit status."""
    try:
        return main(list(arguments))
    except SystemExit as end:
        return int(str(end.code))


def command(*arguments: str) -> tuple[int, str]:
    """Run a command; gives its exit status, and all that was printed."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        status = status_of(*arguments)
    return status, printed.getvalue()
