"""Say where each path of a table leads after the table has moved, and keep how it is spelled.

Position deletes apply to a data file by its path, letter by letter. So two paths that differ
before differ after, also where they name one file, and two that are equal stay equal.
"""

import itertools
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from icekit.common.errors import IcekitError
from icekit.iceberg.paths import LOCAL, Normal, normal

_URI = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*:(?://[^/]*)?)?(.*)", re.DOTALL)
#: What stands before a path on a disk of this machine.
_LOCAL_SPELLINGS = ("", "file:", "file://")


class PathOutside(IcekitError):
    """A path of a table that lies in none of the folders that move with the table."""


class _Part(NamedTuple):
    """A path in two parts: a folder as it is spelled, and what follows."""

    folder: str
    inner_path: str


class MovedPaths:
    """Where paths lead: from each of some folders to another, which is given as a plain path.

    With an ``elsewhere``, each other folder that a path names moves to a numbered folder there;
    without one, a path in another folder raises :class:`PathOutside`.
    """

    def __init__(self, folders: Mapping[str, str], elsewhere: str | None = None) -> None:
        self._new_folders = {normal_form_of(old): new.rstrip("/") for old, new in folders.items()}
        # A folder inside another comes first.
        self._moved = sorted(self._new_folders, key=lambda normal_folder: -len(normal_folder.path))
        self._elsewhere = elsewhere
        #: The new spelling of each spelling of a folder.
        self._spellings: dict[Normal, dict[str, str]] = {}
        self._folders: dict[str, str] = {}
        for old in folders:
            self._new_folder(normal_form_of(old), old.rstrip("/"))

    def __call__(self, path: str) -> str:
        """The path of the same file after the move."""
        folder, _, name = path.rpartition("/")
        if folder not in self._folders:
            self._folders[folder] = self._moved_folder(folder or "/")
        return f"{self._folders[folder]}/{name}"

    def moved_folder_path(self, path: str) -> str:
        """The path of a folder after the move."""
        trimmed_path = path.rstrip("/")
        return self._moved_folder(trimmed_path or "/") + path[len(trimmed_path) :]

    def moves_together(self, low: str, high: str) -> bool:
        """Tell whether all paths from the first to the second one, in their order as texts, lead to
        one folder and stay in that order.
        """
        if low == high:
            return True
        # Folders inside of each other move apart.
        if any(a != b and _is_in(a.path, b.path) for a in self._moved for b in self._moved):
            return False
        parts = [self._split_folder(path.rpartition("/")[0]) for path in (low, high)]
        if None in parts:
            return False
        (low_folder, _), (high_folder, _) = parts  # type: ignore[misc]
        return bool(low_folder == high_folder)

    def _moved_folder(self, folder: str) -> str:
        if (part := self._split_folder(folder)) is not None:
            return self._new_folder(normal_form_of(part.folder), part.folder) + part.inner_path
        if self._elsewhere is None:
            raise PathOutside(
                f"{folder} lies outside the table's own folders, so the table cannot be moved: it "
                "would still name files of another one."
            )
        normal_folder = normal_form_of(folder)
        if normal_folder not in self._new_folders:
            # Only this folder: one below it gets a number of its own.
            folder_number = len(self._new_folders) - len(self._moved) + 1
            self._new_folders[normal_folder] = f"{self._elsewhere}/{folder_number}"
        return self._new_folder(normal_folder, folder)

    def _split_folder(self, folder: str) -> _Part | None:
        """A folder by the moved folder that it lies in, None for another one."""
        normal_folder = normal_form_of(folder)
        moved_folder = next(
            (
                moved_candidate
                for moved_candidate in self._moved
                if _is_same_or_in(normal_folder, moved_candidate)
            ),
            None,
        )
        if moved_folder is None:
            return None
        # The shortest beginning that is that folder, as it is spelled, and that no .. leaves again.
        end_offsets = (match.start() for match in re.finditer(r"/|$", folder))
        end = next(
            end
            for end in end_offsets
            if normal_form_of(folder[:end]) == moved_folder and _stays_inside(folder[end:])
        )
        return _Part(folder[:end], folder[end:])

    def _new_folder(self, normal_folder: Normal, spelling: str) -> str:
        """The new path of a folder, spelled in one way for each way in which it was spelled."""
        spellings = self._spellings.setdefault(normal_folder, {})
        if spelling not in spellings:
            spellings[spelling] = self._unused_spelling(normal_folder, spelling)
        return spellings[spelling] + self._new_folders[normal_folder]

    def _unused_spelling(self, normal_folder: Normal, spelling: str) -> str:
        used_spellings = self._spellings[normal_folder].values()
        match = _URI.fullmatch(spelling)
        assert match is not None
        scheme_part = match[1] or ""
        if (
            scheme_part in _LOCAL_SPELLINGS
            and match[2] == normal_folder.path
            and scheme_part not in used_spellings
        ):
            return scheme_part
        return next(
            candidate for candidate in _possible_spellings() if candidate not in used_spellings
        )


def _possible_spellings() -> Iterator[str]:
    yield from _LOCAL_SPELLINGS
    # A further slash changes nothing for a file system.
    for slash_count in itertools.count(1):
        yield "file://" + "/" * slash_count


def _stays_inside(inner_path: str) -> bool:
    """Tell whether what follows a folder never leaves it."""
    depth = 0
    for path_part in inner_path.split("/"):
        depth += -1 if path_part == ".." else path_part not in ("", ".")
        if depth < 0:
            return False
    return True


def normal_form_of(path: str) -> Normal:
    """The normal form of a path; one without a scheme is on a disk of this machine."""
    normal_form = normal(path)
    return normal_form._replace(family="file") if normal_form.family in LOCAL else normal_form


def _is_in(path: str, folder: str) -> bool:
    return path.startswith(folder.rstrip("/") + "/")


def _is_same_or_in(normal_path: Normal, normal_folder: Normal) -> bool:
    return normal_path[:2] == normal_folder[:2] and (
        normal_path.path == normal_folder.path or _is_in(normal_path.path, normal_folder.path)
    )
