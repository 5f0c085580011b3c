"""Set up a notebook from its parameters, observe its table, and end it with a result; the cells in
between call the package itself.
"""

import os
import re
import sys
import time
from collections.abc import Iterable, Mapping, MutableMapping
from pathlib import Path
from typing import Any

from icekit.api import Lake
from icekit.api import connect as connected  # notebooks call it too
from icekit.common.commands.notebooks import NOTEBOOKS
from icekit.common.errors import EXIT_UNHEALTHY, IcekitError, ParameterError, require_known
from icekit.common.options import Settings
from icekit.common.saving import Result
from icekit.common.terminal import ATTENDED, has_front_end, is_kernel
from icekit.health.diagnose.findings import Thresholds
from icekit.health.facts.model import TableFacts
from icekit.show.explorer import SWITCH


def begin(
    cell_globals: MutableMapping[str, Any],
    notebook: str = "",
    *,
    lab: Mapping[str, Any] | None = None,
) -> Any:
    """Make errors readable, read a notebook's parameters, and give its settings: those of
    :data:`icekit.common.commands.notebooks.NOTEBOOKS`.

    A parameter that papermill was given wins over one in the cell tagged ``parameters``, and that
    over ``more``; papermill puts its values, as variables, into a cell after the tagged one, and
    itself only warns about an unknown one. Parameters with a line of their own are read in place,
    too. ``lab`` is what the notebook's example is set with: it applies only to tables of icekit's
    own lab, and only to what nobody set, and stands in the settings alone. Raises
    :class:`~icekit.common.errors.ParameterError` for a name that the notebook does not have, with
    the nearest known, and for a value that cannot be read.
    """
    _show_plain_errors()
    settings_class = NOTEBOOKS.get(notebook, Settings)
    declarations = settings_class.declarations
    parameter_names, papermill_names = _parameter_and_papermill_names(cell_globals.get("In", ()))
    for name in papermill_names:
        require_known(name, [*declarations, *parameter_names], "parameter")
    if papermill_names and not has_front_end():
        # papermill runs it with parameters: nobody is there to move a slider.
        os.environ.setdefault(SWITCH, "off")
    if is_kernel() and not has_front_end():
        os.environ.setdefault(ATTENDED, "no")
    _find_lake_above()
    more_values = cell_globals.get("more", {})
    if not isinstance(more_values, Mapping):
        raise ParameterError(
            f"more must be a mapping (with papermill: -y 'more: {{name: value}}'), not "
            f"{more_values!r}."
        )
    if repeated_names := [name for name in more_values if name in parameter_names]:
        raise ParameterError(f"{repeated_names[0]} has a line of its own above more; set it there.")
    # Not every front end keeps the cells: then each variable with the name of a setting is one.
    variable_values = {
        name: cell_globals[name]
        for name in [*parameter_names, *papermill_names] or declarations
        if name in declarations and name in cell_globals
    }
    notebook_settings = settings_class.of({**more_values, **variable_values})
    cell_globals.update({name: getattr(notebook_settings, name) for name in variable_values})
    table_and_sql_text = (
        f"{getattr(notebook_settings, 'table', '')} {getattr(notebook_settings, 'sql', '')}"
    )
    if (
        lab
        and not getattr(notebook_settings, "catalog", "")
        and re.search(r"(^| )lab\.", table_and_sql_text)
    ):
        stated_names = {*more_values, *papermill_names, *notebook_settings.changed()}
        notebook_settings = notebook_settings.with_values(
            **{name: value for name, value in lab.items() if name not in stated_names}
        )
    return notebook_settings


def _parameter_and_papermill_names(cells: Iterable[str]) -> tuple[list[str], list[str]]:
    """The names that the cell tagged ``parameters`` declares with their types, as no other cell
    does, and those that papermill sets after it.
    """
    parameter_names: list[str] = []
    papermill_names: list[str] = []
    for cell in cells:
        if cell.lstrip().startswith("# Parameters"):
            papermill_names = re.findall(r"^(\w+) =", cell, re.M)
        elif typed_names := re.findall(r"^(\w+)\s*:[^=\n]*=", cell, re.M):
            parameter_names = typed_names
            papermill_names = []
    return parameter_names, papermill_names


def _find_lake_above() -> None:
    """See that a notebook opened in notebooks/ or notebooks/lessons/ and one that is run from the
    root find the same lake.
    """
    if "ICEKIT_LAKE" not in os.environ and not Path("lake").exists():
        lake_folder = next(
            (folder for folder in (Path("../lake"), Path("../../lake")) if folder.is_dir()), None
        )
        if lake_folder is not None:
            os.environ["ICEKIT_LAKE"] = str(lake_folder.resolve())


def _show_plain_errors() -> None:
    """In IPython, show an IcekitError as its sentence; ``ICEKIT_DEBUG`` keeps the stack trace."""
    if "IPython" not in sys.modules or os.environ.get("ICEKIT_DEBUG"):
        return
    from IPython.core.getipython import get_ipython

    ipython_shell: Any = get_ipython()
    if ipython_shell is not None:
        ipython_shell.set_custom_exc((IcekitError,), _show_one_sentence)


def _show_one_sentence(
    shell: Any,
    error_class: type[IcekitError],
    error: IcekitError,
    _trace: object,
    **_offset: object,
) -> list[str]:
    """Show an error without its stack, in colour as IPython shows errors."""
    lines = [f"\x1b[31m{error_class.__name__}\x1b[0m: {error}"]
    shell._showtraceback(error_class, error, lines)
    return lines


def observe(
    settings: Any, *, ref: str | None = None, storage: bool | None = None
) -> tuple[Lake, TableFacts, Thresholds]:
    """The catalog, the facts and the thresholds of a notebook's settings; or the facts that a
    report has already collected. ``ref`` and ``storage`` are in place of those of the settings.
    """
    thresholds = Thresholds().with_changes(**getattr(settings, "thresholds", {}))
    lake = connected(settings.catalog)
    if facts_path := getattr(settings, "facts_file", ""):
        from icekit.health.diagnose.document import load_facts

        return lake, load_facts(Path(facts_path)), thresholds
    setting_names = {"ref", "filter_columns", "collector", "storage"} & settings.declarations.keys()
    observe_options = settings.only(*setting_names)
    if ref is not None:
        observe_options["ref"] = ref
    if storage is not None:
        observe_options["storage"] = storage
    facts = lake.observe(settings.table, size_ratios=thresholds.size_ratios, **observe_options)
    return lake, facts, thresholds


def read_now(lake: Lake, table: str, is_wanted: bool) -> Any:
    """Count the rows of a table with its equality deletes resolved on a clone, or say that this was
    not asked for.
    """
    if not is_wanted:
        return "The table was not read: read_now is false."
    from icekit.rows.deletes.resolved import resolved

    start_seconds = time.monotonic()
    # Not lake.read_resolved: a kernel that is killed would leave the clone behind.
    with resolved(lake, lake.identifier(table)) as rows:
        return (
            f"{rows.count():,} rows, {len(rows.columns)} columns, resolved and counted in "
            f"{time.monotonic() - start_seconds:.0f} s"
        )


def question_arguments(options: Settings) -> dict[str, Any]:
    """What a tuning question or a review is asked with: what differs from its default, and for a
    file its text.
    """
    from icekit.tune.statement import read_statement_file

    arguments = {
        name: value
        for name, value in options.changed().items()
        if name not in ("catalog", "table", "output")
    }
    texts_of_files = {
        name.removesuffix("_file"): read_statement_file(arguments.pop(name))
        for name in tuple(arguments)
        if name.endswith("_file")
    }
    return arguments | texts_of_files


class Unhealthy(IcekitError):
    """The result is a failure; raised after everything is written."""

    exit_status = EXIT_UNHEALTHY


def conclude(result: Result, *, output: str = "") -> str:
    """Write a result's JSON document if a folder is given, then fail the run if the result is a
    failure.

    Raises :class:`Unhealthy` after everything is written.
    """
    written_sentence = "Nothing was written, because no output folder was given."
    if output:
        written_sentence = f"The result is in {result.write_into(Path(output))}."
    if result.failure:
        raise Unhealthy(f"{result.failure} {written_sentence}")
    return written_sentence
