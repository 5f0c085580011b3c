"""Say what went wrong and what to do next, in a short message.

Every error that a person can cause or meet is an :class:`IcekitError`: its message
ends with the next step, and its ``exit_status`` is what a scheduler sees. A :class:`Status` says
how an action, run, report or pass ended.
"""

import difflib
import json
import math
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from importlib.machinery import ModuleSpec
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit
from urllib.request import url2pathname

from icekit.common.secrets import mask, scrub
from icekit.common.units import shorten

T = TypeVar("T")

EXIT_HEALTHY = 0
EXIT_UNHEALTHY = 1
EXIT_MISCONFIGURED = 2
EXIT_CRASHED = 3
#: As shells report Ctrl-C.
EXIT_STOPPED = 130


# A long name or quoted text in a message, which nobody would read to the end; paths may be as long
# as storage allows.
_LONG = re.compile(r"""(?<!\w)(['"`])(?:(?!\1)[^\n]){300,}\1(?!\w)|\S{300,}""")
_LONGEST_PATH = 1_100
_SHOWN = 200


def shortened(message: str) -> str:
    """Cut the middle out of long names and quoted texts."""
    return _LONG.sub(
        lambda match: (
            match[0]
            if "/" in match[0] and len(match[0]) < _LONGEST_PATH
            else shorten(match[0], _SHOWN)
        ),
        message,
    )


class IcekitError(Exception):
    """An error that a person can fix; the message says how. Texts from outside must be scrubbed by
    the caller.
    """

    exit_status = EXIT_MISCONFIGURED

    def __init__(self, message: str) -> None:
        super().__init__(shortened(mask(message)))


class ProfileError(IcekitError):
    """A catalog profile is missing, or contains an unusable key."""


class CatalogUnreachable(IcekitError):
    """The catalog did not answer, or refused access."""


class PermissionDenied(IcekitError):
    """The catalog or the storage denied access."""


class InvalidName(IcekitError):
    """An invalid table name."""


class TableNotFound(IcekitError):
    """No table has that name; the message suggests similar names."""


class NotATable(IcekitError):
    """A view, or a table of another format."""


class SnapshotNotFound(IcekitError):
    """A snapshot, branch or tag that does not exist (any more)."""


class MetadataUnreadable(IcekitError):
    """A metadata file, manifest list or manifest is gone or corrupt."""


class FileGone(MetadataUnreadable):
    """A file that a table names and that is not in its storage."""


class FormatTooNew(MetadataUnreadable):
    """A table has a format version that came after this icekit. Nothing is wrong with it: an older
    metadata file in its place would take commits away.
    """

    def __init__(self, name: str, version: int | str) -> None:
        from importlib.metadata import version as version_of

        super().__init__(
            f"{name} has format version {version}, which icekit {version_of('icekit')} does not "
            "read. Use a newer icekit."
        )


class ParameterError(IcekitError):
    """An unknown parameter, or an invalid value for one."""


class CloneRefused(IcekitError):
    """The catalog does not accept a second table for the same files, or the session cannot clean
    one up.
    """


class ConversionRefused(IcekitError):
    """Equality deletes that cannot be converted, and why."""


class ReadersDisagree(IcekitError):
    """Rows that are deleted by the specification, and that Iceberg's readers show; nothing was
    committed.
    """


class DeletesUnmatched(IcekitError):
    """Position deletes spell the paths of their data files otherwise than the table does, so a
    rewrite would lose them.
    """


class TableContradicted(IcekitError):
    """The metadata of a table contradicts itself or the clock, so a rewrite would keep the fault,
    lose deletes or fail; nothing was run.

    ``contradictions`` are of :class:`icekit.health.facts.integrity.Contradiction`.
    """

    exit_status = EXIT_UNHEALTHY

    def __init__(self, message: str, contradictions: tuple[str, ...]) -> None:
        super().__init__(message)
        self.contradictions = contradictions


class ColumnsUnsupported(IcekitError):
    """Spark, with this Iceberg, cannot read or write a table with these columns; nothing was run.

    ``columns`` are of :class:`icekit.health.facts.model.UnsupportedColumn`.
    """

    exit_status = EXIT_UNHEALTHY

    def __init__(self, message: str, columns: tuple[object, ...]) -> None:
        super().__init__(message)
        self.columns = columns


class ColumnUnhashed(IcekitError):
    """A column whose values icekit cannot compare; nothing was committed."""


class RemovalRefused(IcekitError):
    """Files that must not be removed, because another table may need them."""


class StatementRefused(IcekitError):
    """A statement that cannot be parsed or tried, and why."""


class RehearsalFailed(IcekitError):
    """A trial on a clone failed or changed rows; the table itself was not touched."""

    exit_status = EXIT_UNHEALTHY


class SparkUnavailable(IcekitError):
    """Spark is needed and cannot be started or used."""


class ClassicSessionRequired(IcekitError):
    """A session of Spark Connect, over which icekit only reads."""


class EngineFailed(IcekitError):
    """Spark or Iceberg failed at a requested operation."""


class DiskUnusable(IcekitError):
    """A file or folder of this machine that cannot be written or read, or too little memory."""


class DiskFull(IcekitError):
    """A disk has no space left for the files of a rewrite; nothing smaller would help."""

    exit_status = EXIT_UNHEALTHY


class CommitBroken(IcekitError):
    """A commit is in the table, and files that it added are gone; the message has the way back."""

    exit_status = EXIT_UNHEALTHY


class TableClaimed(IcekitError):
    """Another run holds the table; the message names it."""


class RunDisproved(IcekitError):
    """The proof of run ``run_id`` failed, and no person has looked at the table since; the message
    says what to do.
    """

    exit_status = EXIT_UNHEALTHY

    def __init__(self, message: str, run_id: str) -> None:
        super().__init__(message)
        self.run_id = run_id


class ClaimLost(IcekitError):
    """Another run has taken over a run's claim on its table."""


class LedgerUnusable(IcekitError):
    """The record of runs cannot be read or written."""


class HistoryUnusable(IcekitError):
    """The history of tables' health cannot be read or written."""


#: The longest wait, in seconds: about 30 years, which a thread still accepts as a timeout.
LONGEST_WAIT = 1e9


def require_number(
    name: str, value: object, *, is_positive: bool = False, maximum: float = math.inf
) -> None:
    """Reject anything but a finite number of 0 or more (``is_positive``: more than 0), and at most
    ``maximum``; None means not given.
    """
    if value is None:
        return
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or not 0 <= value <= maximum
        or math.isinf(value)
        or (is_positive and value == 0)
    ):
        lower_limit_text = "more than 0" if is_positive else "0 or more"
        upper_limit_text = "finite" if math.isinf(maximum) else f"at most {maximum:,.0f}"
        raise ParameterError(
            f"{name} must be {lower_limit_text}, and {upper_limit_text}, not {value!r}."
        )


def name_suggestion(name: str, known_names: Iterable[str], *, most_names: int = 3) -> str:
    """Render ``; did you mean a, b?`` for the nearest known names, or an empty string."""
    # A text that long is no misspelt name, and comparing it takes long.
    near_names = (
        []
        if len(name) > 200
        else difflib.get_close_matches(name, sorted(set(known_names)), n=most_names, cutoff=0.55)
    )
    return f"; did you mean {', '.join(near_names)}?" if near_names else ""


# Most names that an error lists.
_MOST_NAMES = 50


def require_known(name: object, known_names: Iterable[str], noun: str) -> None:
    """Refuse an unknown name: with the nearest known one, or with all of them.

    Raises :class:`ParameterError`.
    """
    all_names = list(known_names)
    if name in all_names:
        return
    names_text = ", ".join(all_names[:_MOST_NAMES]) + ", …" * (len(all_names) > _MOST_NAMES)
    hint = name_suggestion(str(name), all_names, most_names=1) or (
        f"; use one of {names_text}." if all_names else "."
    )
    raise ParameterError(f"There is no {noun} {name!r}{hint}")


# Libraries whose errors quote the text that they could not read, such as a line of a file of
# credentials, or the answer of a server: the first ones in the first line of the error already.
_PARSERS = {"yaml", "strictyaml", "ruamel", "configparser", "tomllib"}
_QUOTING = _PARSERS | {"pydantic_core", "pydantic"}


def _is_raised_by(error: BaseException, libraries: set[str]) -> bool:
    return any(
        error_class.__module__.partition(".")[0] in libraries for error_class in type(error).__mro__
    )


def first_line(error: BaseException) -> str:
    """What an error says first, without secrets; of an error of a configuration's parser, which
    quotes the configuration, only its class.
    """
    if _is_raised_by(error, _PARSERS):
        return type(error).__name__
    return scrub(str(error)).strip().split("\n", 1)[0][:300].rstrip(".") or type(error).__name__


def why(error: BaseException) -> str:
    """An error in one sentence; one that a person cannot fix has its class in front."""
    if isinstance(error, IcekitError):
        return str(error)
    return f"{type(error).__name__}: {first_line(error)}"


def read_or_explain(read: Callable[[], T], explain: Callable[[Exception], IcekitError]) -> T:
    """What ``read`` gives; its error is replaced by what ``explain`` makes of it.

    For what reads a configuration: its errors quote what they could not read, which nobody can
    then tell from a secret. So the new error has neither a cause nor a context that a stack trace
    would show.
    """
    try:
        return read()
    except Exception as error:
        explained_error = explain(error)
    raise explained_error


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error, what it was raised from, and so on, also where ``from None`` hides it."""
    seen_errors: list[BaseException] = []
    while error is not None and error not in seen_errors:
        yield error
        seen_errors.append(error)
        error = error.__cause__ or error.__context__


def trace(error: BaseException) -> str:
    """The stack traces of an error's :func:`causes`, the first one first, without secrets, and
    without what the parser of a configuration quotes.
    """
    return scrub("\n".join("".join(_trace_lines(cause)) for cause in reversed([*causes(error)])))


def _trace_lines(error: BaseException) -> list[str]:
    import traceback

    if not _is_raised_by(error, _QUOTING):
        return traceback.format_exception(error, chain=False)
    return [
        "Traceback (most recent call last):\n",
        *traceback.format_tb(error.__traceback__),
        f"{type(error).__module__}.{type(error).__qualname__} (its message may quote a secret)\n",
    ]


#: The extras in pyproject.toml that commands need, each with its libraries by import name.
EXTRAS = {
    "frames": ("pandas", "numpy"),
    "spark": ("pyspark",),
    "report": ("papermill", "nbconvert", "matplotlib", "ipykernel"),
    "notebook": ("jupyterlab", "ipywidgets"),
    "sql": ("sqlalchemy",),
    "postgres": ("psycopg", "psycopg2"),
}


class ExtraMissing(IcekitError):
    """A library that is not installed, and the extra that provides it."""

    def __init__(self, purpose: str, library: str) -> None:
        [extra] = [extra_name for extra_name, libraries in EXTRAS.items() if library in libraries]
        super().__init__(
            f"{purpose} needs {library}, which is not installed: run `{install_command(extra)}`."
        )


def require_library(library: str, purpose: str) -> ModuleSpec:
    """The path of an installed library; raises :class:`ExtraMissing` if it is not installed.
    ``purpose`` begins the sentence: ``The lab``.
    """
    module_spec = find_spec(library)
    if module_spec is None or module_spec.origin is None:  # a folder of that name is no package
        raise ExtraMissing(purpose, library)
    return module_spec


def require_extra(extra: str, purpose: str) -> None:
    """Raise :class:`ExtraMissing` unless every library of an extra is installed."""
    for library in EXTRAS[extra]:
        require_library(library, purpose)


def missing_extra(error: BaseException) -> ExtraMissing | None:
    """The error for a library of an extra whose import failed; None for other errors."""
    if not isinstance(error, ModuleNotFoundError):
        return None
    library = (error.name or "").partition(".")[0]
    is_of_extra = any(library in libraries for libraries in EXTRAS.values())
    return ExtraMissing("This", library) if is_of_extra else None


#: Where a clone has the package's files.
_ROOT = Path(__file__).parents[2]


def install_command(extra: str) -> str:
    """The command that installs an extra: into the clone that is used, or from the one that icekit
    was installed from.
    """
    if (_ROOT / "pyproject.toml").exists():
        return f"{_python_command()} -m pip install -e {_requirement(_ROOT, extra)}"
    if (source_folder := _source_folder()) is not None:
        return f"{_python_command()} -m pip install {_requirement(source_folder, extra)}"
    return f"pip install 'icekit[{extra}]'"


def _python_command() -> str:
    """This Python as a shell calls it: by its name if that is this one."""
    return "python" if shutil.which("python") == sys.executable else shlex.quote(sys.executable)


def _requirement(folder: Path, extra: str) -> str:
    return shlex.quote(f"{'.' if Path.cwd() == folder else folder}[{extra}]")


def _source_folder() -> Path | None:
    """The folder that pip installed icekit from, if it was one (PEP 610)."""
    try:
        install_record = json.loads(distribution("icekit").read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        return None
    if "dir_info" not in install_record:
        return None
    return Path(url2pathname(urlsplit(install_record["url"]).path))


class Status(StrEnum):
    """How something ended, the most serious first.

    ``disproved``: it changed rows, or lost something; nothing more runs on the table until a person
    has ``cleared`` the run. ``unproved``: nothing is left to do, but icekit could not prove that no
    row changed. ``refused``: all else is done, but a procedure that the user named was refused.
    ``unhealthy``: by ``fail_on``. ``stopped``: cut short by the window, the budget or a person;
    ``pending``: not begun before that. ``busy``: another run holds the table. ``waits``: left for
    the next pass. ``planned``: a dry run, or what a rule does not allow. ``split``: run again as
    smaller actions. ``skipped``: nothing was left to do.
    """

    CRASHED = "crashed"
    TIMED_OUT = "timed out"
    MISCONFIGURED = "misconfigured"
    DISPROVED = "disproved"
    UNPROVED = "unproved"
    FAILED = "failed"
    REFUSED = "refused"
    UNHEALTHY = "unhealthy"
    STOPPED = "stopped"
    PENDING = "pending"
    BUSY = "busy"
    WAITS = "waits"
    RUNNING = "running"
    CLEARED = "cleared"
    PLANNED = "planned"
    SPLIT = "split"
    DONE = "done"
    SKIPPED = "skipped"
    NOTHING = "nothing to do"

    @property
    def exit_status(self) -> int:
        """The exit status of a command whose most serious status this is."""
        return _EXITS.get(self, EXIT_HEALTHY)

    @property
    def rank(self) -> int:
        """0 for the most serious."""
        return _ORDER.index(self)


_ORDER = list(Status)
_EXITS = {
    Status.CRASHED: EXIT_CRASHED,
    Status.TIMED_OUT: EXIT_CRASHED,
    Status.MISCONFIGURED: EXIT_MISCONFIGURED,
    Status.STOPPED: EXIT_STOPPED,
} | dict.fromkeys(
    (Status.DISPROVED, Status.UNPROVED, Status.FAILED, Status.REFUSED, Status.UNHEALTHY),
    EXIT_UNHEALTHY,
)
