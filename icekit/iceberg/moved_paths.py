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
    rest: str


class MovedPaths:
    """Where paths lead: from each of some folders to another, which is given as a plain path.

    With an ``elsewhere``, each other folder that a path names moves to a numbered folder there;
    without one, a path in another folder raises :class:`PathOutside`.
    """

    def __init__(self, folders: Mapping[str, str], elsewhere: str | None = None) -> None:
        self._new_folders = {place_of(old): new.rstrip("/") for old, new in folders.items()}
        # A folder inside another comes first.
        self._moved = sorted(self._new_folders, key=lambda place: -len(place.path))
        self._elsewhere = elsewhere
        #: The new spelling of each spelling of a folder.
        self._spellings: dict[Normal, dict[str, str]] = {}
        self._folders: dict[str, str] = {}
        for old in folders:
            self._new_folder(place_of(old), old.rstrip("/"))

    def __call__(self, path: str) -> str:
        """The path of the same file after the move."""
        folder, _, name = path.rpartition("/")
        if folder not in self._folders:
            self._folders[folder] = self._moved_folder(folder or "/")
        return f"{self._folders[folder]}/{name}"

    def of_folder(self, path: str) -> str:
        """The path of a folder after the move."""
        without = path.rstrip("/")
        return self._moved_folder(without or "/") + path[len(without) :]

    def moves_together(self, low: str, high: str) -> bool:
        """Tell whether all paths from the first to the second one, in their order as texts, lead to
        one folder and stay in that order.
        """
        if low == high:
            return True
        # Folders inside of each other move apart.
        if any(a != b and _is_in(a.path, b.path) for a in self._moved for b in self._moved):
            return False
        parts = [self._split(path.rpartition("/")[0]) for path in (low, high)]
        if None in parts:
            return False
        (low_folder, _), (high_folder, _) = parts  # type: ignore[misc]
        return bool(low_folder == high_folder)

    def _moved_folder(self, folder: str) -> str:
        if (part := self._split(folder)) is not None:
            return self._new_folder(place_of(part.folder), part.folder) + part.rest
        if self._elsewhere is None:
            raise PathOutside(
                f"{folder} lies outside the table's own folders, so the table cannot be moved: it "
                "would still name files of another one."
            )
        place = place_of(folder)
        if place not in self._new_folders:
            # Only this folder: one below it gets a number of its own.
            number = len(self._new_folders) - len(self._moved) + 1
            self._new_folders[place] = f"{self._elsewhere}/{number}"
        return self._new_folder(place, folder)

    def _split(self, folder: str) -> _Part | None:
        """A folder by the moved folder that it lies in, None for another one."""
        place = place_of(folder)
        moved = next((each for each in self._moved if _is_same_or_in(place, each)), None)
        if moved is None:
            return None
        # The shortest beginning that is that folder, as it is spelled, and that no .. leaves again.
        ends = (match.start() for match in re.finditer(r"/|$", folder))
        end = next(end for end in ends if place_of(folder[:end]) == moved and _stays(folder[end:]))
        return _Part(folder[:end], folder[end:])

    def _new_folder(self, place: Normal, spelled: str) -> str:
        """The new path of a folder, spelled in one way for each way in which it was spelled."""
        spellings = self._spellings.setdefault(place, {})
        if spelled not in spellings:
            spellings[spelled] = self._free_spelling(place, spelled)
        return spellings[spelled] + self._new_folders[place]

    def _free_spelling(self, place: Normal, spelled: str) -> str:
        used = self._spellings[place].values()
        match = _URI.fullmatch(spelled)
        assert match is not None
        before = match[1] or ""
        if before in _LOCAL_SPELLINGS and match[2] == place.path and before not in used:
            return before
        return next(each for each in _every_spelling() if each not in used)


def _every_spelling() -> Iterator[str]:
    yield from _LOCAL_SPELLINGS
    # A further slash changes nothing for a file system.
    for number in itertools.count(1):
        yield "file://" + "/" * number


def _stays(rest: str) -> bool:
    """Tell whether what follows a folder never leaves it."""
    depth = 0
    for step in rest.split("/"):
        depth += -1 if step == ".." else step not in ("", ".")
        if depth < 0:
            return False
    return True


def place_of(path: str) -> Normal:
    """The normal form of a path; one without a scheme is on a disk of this machine."""
    place = normal(path)
    return place._replace(family="file") if place.family in LOCAL else place


def _is_in(path: str, folder: str) -> bool:
    return path.startswith(folder.rstrip("/") + "/")


def _is_same_or_in(place: Normal, folder: Normal) -> bool:
    return place[:2] == folder[:2] and (
        place.path == folder.path or _is_in(place.path, folder.path)
    )
