"""Compare a listing of a table's location with the files that its metadata names: what is an orphan,
what is found, and what nobody can decide.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import NamedTuple

from icekit.engine.file_systems import ListedFile
from icekit.health.facts.storage import EXAMPLES, StorageFacts
from icekit.iceberg.definition import PartitionSpec
from icekit.iceberg.paths import FileUri, file_uri, folder_of, is_local, links, listing_uri


class ExpectedFile(NamedTuple):
    """A file that must exist: where, in which bucket, and with how many bytes (None: any number)."""

    location: str
    place: FileUri
    size: int | None


@dataclass
class NamedFiles:
    """The files that a table's metadata names, by path, each with every scheme and bucket that is
    given for it; ``expected`` are those that must exist, ``doubtful`` those of them that have
    another spelling or size too.
    """

    uris: dict[str, tuple[FileUri, ...]] = field(default_factory=dict)
    expected: dict[str, ExpectedFile] = field(default_factory=dict)
    doubtful: set[str] = field(default_factory=set)
    _places: dict[tuple[str, str], tuple[FileUri, ...]] = field(default_factory=dict)

    def add(self, location: str) -> FileUri:
        """Add a file; returns what it is compared by."""
        uri = file_uri(location)
        uri_group = self._places.get(uri[:2])
        if uri_group is None:
            # One object for all files of a bucket.
            uri_group = self._places[uri[:2]] = (uri._replace(path=""),)
        places = self.uris.setdefault(uri.path, uri_group)
        if places is not uri_group and uri_group[0] not in places:
            self.uris[uri.path] = places + uri_group
        return uri

    def expect(self, location: str, size: int | None) -> None:
        """Add a file that must exist with this size."""
        uri = self.add(location)
        expected = ExpectedFile(location, self._places[uri[:2]][0], size)
        if self.expected.setdefault(uri.path, expected) != expected:
            self.doubtful.add(location)


@dataclass
class Comparison:
    """A listing of a table's location, compared with what the metadata names, file by file.

    ``folder`` is the location. What the listing has is no longer ``expected``, and ``doubtful`` if
    it has another size; these files must be looked up one by one. ``doubts`` say why an orphan may
    be none.
    """

    named: NamedFiles
    folder: str
    older_than_ms: int
    specs: Iterable[PartitionSpec] = ()
    orphan_count: int = 0
    orphan_bytes: int = 0
    examples: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.uri = listing_uri(self.folder)
        self.base = self.uri.path.rstrip("/")
        # Iceberg's PartitionAwareHiddenPathFilter.
        self._shown = tuple(
            f"{field.name}="
            for spec in self.specs
            for field in spec.fields
            if field.name.startswith(("_", "."))
        )

    def is_hidden(self, path: str) -> bool:
        """Tell whether ``remove_orphan_files`` leaves out a path from the location: a name in it
        begins with _ or a dot, and not with a partition field of that name.
        """
        if "/_" not in f"/{path}" and "/." not in f"/{path}":
            return False
        return any(
            name.startswith(("_", ".")) and not name.startswith(self._shown)
            for name in path.split("/")
        )

    def compare(self, file: ListedFile) -> None:
        """Compare one file of the listing."""
        if file.is_repeated_link:
            self._doubt(
                f"{self._located(file.path)} is a link to a folder of the table, so its files have "
                "two paths"
            )
            return
        path = f"{self.base}/{file.path}"
        places = self.named.uris.get(path)
        if places is not None and any(named_uri.names(self.uri) for named_uri in places):
            expected = self.named.expected.get(path)
            if expected is not None and expected.place.names(self.uri):
                del self.named.expected[path]
                if expected.size not in (None, file.size):
                    self.named.doubtful.add(expected.location)
        if file.modified_ms >= self.older_than_ms or self.is_hidden(file.path):
            return
        if places is None:
            self._add_orphan(file)
        elif other := next(
            (named_uri for named_uri in places if not named_uri.names(self.uri)), None
        ):
            self._doubt(
                f"the metadata names {_spelled(other, path)}, and the location has "
                f"{_spelled(self.uri, path)}: only a person can say whether they are one file"
            )

    def _add_orphan(self, file: ListedFile) -> None:
        self.orphan_count += 1
        self.orphan_bytes += file.size
        self.examples = nsmallest(EXAMPLES, [*self.examples, self._located(file.path)])
        if file.link:
            self._doubt(
                f"{self._located(file.link)} is a link to another folder, whose files may belong "
                "to something else"
            )

    def _located(self, path: str) -> str:
        """A listed path, spelled as ``remove_orphan_files`` spells it."""
        if is_local(self.folder):
            return f"file:{self.base}/{path}"
        return f"{self.folder.rstrip('/')}/{path}"

    def _doubt(self, reason: str) -> None:
        if not self.doubts:
            self.doubts.append(reason)

    def doubt_links(self) -> None:
        """Doubt the orphans of a local folder if the metadata names files in it through links that
        lead elsewhere in the folder: the same files have two paths.
        """
        if not self.orphan_count or not is_local(self.folder):
            return
        real_base = os.path.realpath(self.base or "/")
        files = {path for path, places in self.named.uris.items() if places[0].is_on_disk}
        folders = {folder_of(path) for path in files}
        for path, real in links(folders).items():
            is_inside = f"{path}/".startswith(f"{self.base}/")
            if is_inside and real == f"{real_base}{path[len(self.base) :]}":
                continue  # a link above the location
            if (path in files or path in folders) and f"{real}/".startswith(f"{real_base}/"):
                self._doubt(f"the metadata names files by {path}, which is a link to {real}")

    def doubt_listing(self, sizes: Mapping[str, int | None]) -> None:
        """Doubt the orphans if a file that the listing should have had exists (``sizes`` are those
        of the files that were looked up): the storage lists a name in another way than it is asked for.
        """
        for path, expected in self.named.expected.items():
            if (
                sizes[expected.location] is not None
                and path.startswith(f"{self.base}/")
                and not self.is_hidden(path[len(self.base) + 1 :])
                and expected.place.names(self.uri)
            ):
                self._doubt(f"the listing does not have {expected.location}, which exists")

    @property
    def storage(self) -> StorageFacts:
        """The orphan files, all of them weighed."""
        return StorageFacts(
            self.older_than_ms,
            self.orphan_count,
            tuple(self.examples),
            self.orphan_bytes,
            self.orphan_count,
        )


def _spelled(uri: FileUri, path: str) -> str:
    scheme = f"{uri.scheme}:" if uri.scheme else ""
    return f"{scheme}//{uri.authority}{path}" if uri.authority else f"{scheme}{path}"
