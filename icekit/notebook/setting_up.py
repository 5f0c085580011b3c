"""Begin a notebook: readable errors, known parameters, checked values."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from icekit.diagnose.findings import Severity, Thresholds
from icekit.errors import IcekitError, ParameterError, nearest
from icekit.show.health import SWITCH

GATES = ("never", *(severity.name.lower() for severity in Severity if severity > Severity.INFO))


def begin(parameters: Mapping[str, Any], known: Sequence[str]) -> None:
    """Make errors readable, and refuse parameters that the notebook does not have.

    ``parameters`` are the cell's globals, ``known`` the names of the parameters cell.
    papermill itself only warns about an unknown one. Raises
    :class:`~icekit.errors.ParameterError` with the nearest known name.
    """
    _plain_errors()
    for cell in reversed(list(parameters.get("In", ()))):
        if cell.lstrip().startswith("# Parameters"):
            check_names(_assigned(cell), known)
            if not _has_front_end():
                # papermill runs it with parameters: nobody is there to move a slider.
                os.environ.setdefault(SWITCH, "off")
            break
    # A notebook that is opened in notebooks/ or notebooks/lessons/ and one that is run from the root find the same lake.
    if "ICEKIT_LAKE" not in os.environ and not Path("lake").exists():
        above = next((folder for folder in (Path("../lake"), Path("../../lake")) if folder.is_dir()), None)
        if above is not None:
            os.environ["ICEKIT_LAKE"] = str(above.resolve())


def _has_front_end() -> bool:
    """Tell whether a person's front end has sent the cell that runs: JupyterLab and its like name the cell, papermill does not."""
    if "IPython" not in sys.modules:
        return False
    from IPython.core.getipython import get_ipython

    shell: Any = get_ipython()
    request = shell.get_parent() if hasattr(shell, "get_parent") else None
    return bool(((request or {}).get("metadata") or {}).get("cellId"))


def check_names(given: Sequence[str], known: Sequence[str]) -> None:
    """Refuse a parameter name that is not known."""
    for name in given:
        if name not in known:
            raise ParameterError(
                f"There is no parameter {name!r}{nearest(name, known, count=1) or '; there are ' + ', '.join(known) + '.'}"
            )


def limits(thresholds: Mapping[str, float] | None, fail_on: str = "never") -> Thresholds:
    """The default thresholds with some changed; checks the gate's name too."""
    check_gate(fail_on)
    require("thresholds", thresholds or {}, dict, "a mapping (with papermill: -y 'thresholds: {snapshots: 50}')")
    return Thresholds().with_changes(**dict(thresholds or {}))


def check_gate(fail_on: str) -> None:
    """Refuse a gate that is not one of never, warning, critical."""
    if fail_on not in GATES:
        raise ParameterError(f"fail_on is {fail_on!r}{nearest(fail_on, GATES, count=1) or '; use ' + ', '.join(GATES) + '.'}")


def gated(worst: Severity | None, fail_on: str) -> bool:
    """Tell whether a severity fails a gate."""
    check_gate(fail_on)
    return fail_on != "never" and worst is not None and worst >= Severity[fail_on.upper()]


def require(name: str, value: object, kind: type | tuple[type, ...], wanted: str) -> None:
    """Refuse a parameter of another kind: papermill's -r makes a text of everything."""
    if not isinstance(value, kind):
        raise ParameterError(f"Parameter {name} must be {wanted}, not {value!r}.")


def _assigned(cell: str) -> list[str]:
    """Names that a cell assigns at its top level."""
    return [
        target.id
        for statement in ast.parse(cell).body
        for target in (
            statement.targets if isinstance(statement, ast.Assign) else [statement.target] if isinstance(statement, ast.AnnAssign) else []
        )
        if isinstance(target, ast.Name)
    ]


def _plain_errors() -> None:
    """In IPython, show an IcekitError as its sentence; ``ICEKIT_DEBUG`` keeps the stack trace."""
    if "IPython" not in sys.modules or os.environ.get("ICEKIT_DEBUG"):
        return
    from IPython.core.getipython import get_ipython

    shell: Any = get_ipython()
    if shell is not None:
        shell.set_custom_exc((IcekitError,), _one_sentence)


def _one_sentence(shell: Any, kind: type[IcekitError], error: IcekitError, _trace: object, **_offset: object) -> list[str]:
    """Show an error without its stack, in colour as IPython shows errors."""
    said = [f"\x1b[31m{kind.__name__}\x1b[0m: {error}"]
    shell._showtraceback(kind, error, said)
    return said
