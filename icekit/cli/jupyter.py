"""Run icekit's commands in a notebook: ``%load_ext icekit``, then ``%icekit look db.events``."""

import contextlib
import shlex
import tempfile

from IPython.core.error import UsageError

from icekit.cli.main import main
from icekit.common.errors import EXIT_HEALTHY
from icekit.engine.session import keep_session


def icekit(line: str, cell: str | None = None) -> None:
    """Run a command as in a terminal, in this kernel's Spark session.

    Under ``%%icekit review-merge`` the cell is the statement. Raises IPython's UsageError, which
    stops Run All, for every exit status but 0: the command could not do its work, its proof
    failed, or ``--fail-on`` asked for it.
    """
    with contextlib.ExitStack() as cleanup_stack:
        cleanup_stack.enter_context(keep_session())
        arguments = shlex.split(line)
        if cell is not None:
            cell_file = cleanup_stack.enter_context(tempfile.NamedTemporaryFile("w", suffix=".sql"))
            cell_file.write(cell)
            cell_file.flush()
            arguments.append(cell_file.name)
        exit_status = main(arguments)
        if exit_status != EXIT_HEALTHY:
            raise UsageError(f"icekit ended with exit status {exit_status}.")
