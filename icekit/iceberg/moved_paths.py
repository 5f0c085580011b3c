"""Say where each path of a table leads after the table has moved, and keep how it is spelled.

Position deletes apply to a data file by its path, letter by letter. So two paths that differ
before differ after, also where they name one file, and two that are equal stay equal.
"""

import itertools
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from icekit.common.errors import IcekitError
from icekit.iceberg.paths import LOCAL, NormalPath, normal_path_of

_URI = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*:(?://[^/]*)?)?(.*)", re.DOTALL)
#: What stands before a path on a disk of this machine.
_LOCAL_PREFIXES = ("", "file:", "file://")


class PathOutside(IcekitError):
    """A path of a table that lies in none of the folders that move with the table."""


class _SplitPath(NamedTuple):
    """A path in two parts: the moved folder that it lies in, as it is spelled, and what follows."""

    moved_folder: str
    inner_path: str


class MovedPaths:
    """Where paths lead: from each of some folders to another, which is given as a plain path.

    With an ``elsewhere``, each other folder that a path names moves to a numbered folder there;
    without one, a path in another folder raises :class:`PathOutside`.
    """

    def __init__(
        self, target_by_folder: Mapping[str, str], fallback_folder: str | None = None
    ) -> None:
        self._new_folders = {
            local_normal_path(old): new.rstrip("/") for old, new in target_by_folder.items()
        }
        # A folder inside another comes first.
        self._moved_folders = sorted(
            self._new_folders, key=lambda normal_folder: -len(normal_folder.path)
        )
        self._fallback_folder = fallback_folder
        #: The new spelling of each spelling of a folder.
        self._new_spellings: dict[NormalPath, dict[str, str]] = {}
        self._new_path_by_folder: dict[str, str] = {}
        for old in target_by_folder:
            self._new_folder(local_normal_path(old), old.rstrip("/"))

    def __call__(self, path: str) -> str:
        """The path of the same file after the move."""
        folder, _, file_name = path.rpartition("/")
        if folder not in self._new_path_by_folder:
            self._new_path_by_folder[folder] = self._moved_folder(folder or "/")
        return f"{self._new_path_by_folder[folder]}/{file_name}"

    def moved_folder_path(self, path: str) -> str:
        """The path of a folder after the move."""
        trimmed_path = path.rstrip("/")
        return self._moved_folder(trimmed_path or "/") + path[len(trimmed_path) :]

    def moves_together(self, low_path: str, high_path: str) -> bool:
        """Tell whether all paths from the first to the second one, in their order as texts, lead to
        one folder and stay in that order.
        """
        if low_path == high_path:
            return True
        # Folders inside of each other move apart.
        if any(
            a != b and _is_in(a.path, b.path)
            for a in self._moved_folders
            for b in self._moved_folders
        ):
            return False
        split_paths = [
            self._split_folder(path.rpartition("/")[0]) for path in (low_path, high_path)
        ]
        if None in split_paths:
            return False
        (low_folder, _), (high_folder, _) = split_paths  # type: ignore[misc]
        return bool(low_folder == high_folder)

    def _moved_folder(self, folder: str) -> str:
        if (split_path := self._split_folder(folder)) is not None:
            return (
                self._new_folder(
                    local_normal_path(split_path.moved_folder), split_path.moved_folder
                )
                + split_path.inner_path
            )
        if self._fallback_folder is None:
            raise PathOutside(
                f"{folder} lies outside the table's own folders, so the table cannot be moved: it "
                "would still name files of another one."
            )
        normal_folder = local_normal_path(folder)
        if normal_folder not in self._new_folders:
            # Only this folder: one below it gets a number of its own.
            folder_number = len(self._new_folders) - len(self._moved_folders) + 1
            self._new_folders[normal_folder] = f"{self._fallback_folder}/{folder_number}"
        return self._new_folder(normal_folder, folder)

    def _split_folder(self, folder: str) -> _SplitPath | None:
        """A folder by the moved folder that it lies in, None for another one."""
        normal_folder = local_normal_path(folder)
        enclosing_folder = next(
            (
                candidate_folder
                for candidate_folder in self._moved_folders
                if _is_same_or_in(normal_folder, candidate_folder)
            ),
            None,
        )
        if enclosing_folder is None:
            return None
        # The shortest beginning that is that folder, as it is spelled, and that no .. leaves again.
        end_offsets = (separator.start() for separator in re.finditer(r"/|$", folder))
        end = next(
            end
            for end in end_offsets
            if local_normal_path(folder[:end]) == enclosing_folder and _stays_inside(folder[end:])
        )
        return _SplitPath(folder[:end], folder[end:])

    def _new_folder(self, normal_folder: NormalPath, spelling: str) -> str:
        """The new path of a folder, spelled in one way for each way in which it was spelled."""
        new_spelling_by_old = self._new_spellings.setdefault(normal_folder, {})
        if spelling not in new_spelling_by_old:
            new_spelling_by_old[spelling] = self._unused_prefix(normal_folder, spelling)
        return new_spelling_by_old[spelling] + self._new_folders[normal_folder]

    def _unused_prefix(self, normal_folder: NormalPath, spelling: str) -> str:
        used_spellings = self._new_spellings[normal_folder].values()
        uri_match = _URI.fullmatch(spelling)
        assert uri_match is not None
        scheme_prefix = uri_match[1] or ""
        if (
            scheme_prefix in _LOCAL_PREFIXES
            and uri_match[2] == normal_folder.path
            and scheme_prefix not in used_spellings
        ):
            return scheme_prefix
        return next(
            candidate_spelling
            for candidate_spelling in _possible_prefixes()
            if candidate_spelling not in used_spellings
        )


def _possible_prefixes() -> Iterator[str]:
    yield from _LOCAL_PREFIXES
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


def local_normal_path(path: str) -> NormalPath:
    """The normal form of a path; one without a scheme is on a disk of this machine."""
    normal_form = normal_path_of(path)
    return (
        normal_form._replace(storage_kind="file")
        if normal_form.storage_kind in LOCAL
        else normal_form
    )


def _is_in(path: str, folder: str) -> bool:
    return path.startswith(folder.rstrip("/") + "/")


def _is_same_or_in(normal_path: NormalPath, normal_folder: NormalPath) -> bool:
    return normal_path[:2] == normal_folder[:2] and (
        normal_path.path == normal_folder.path or _is_in(normal_path.path, normal_folder.path)
    )
