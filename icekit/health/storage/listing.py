"""Compare a listing of a table's location with the files that its metadata names: what is an
orphan, what is found, and what nobody can decide.
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
from icekit.iceberg.paths import (
    FileUri,
    file_uri,
    folder_of,
    is_local,
    listing_uri,
    symbolic_link_targets,
)


class ExpectedFile(NamedTuple):
    """A file that must exist: where, in which bucket, and with how many bytes (None: any)."""

    location: str
    bucket_uri: FileUri
    size: int | None


@dataclass
class NamedFiles:
    """The files that a table's metadata names, by path, each with every scheme and bucket that is
    given for it; ``expected_by_path`` are those that must exist, ``doubtful_locations`` those of
    them that have another spelling or size too.
    """

    uris_by_path: dict[str, tuple[FileUri, ...]] = field(default_factory=dict)
    expected_by_path: dict[str, ExpectedFile] = field(default_factory=dict)
    doubtful_locations: set[str] = field(default_factory=set)
    _bucket_uris: dict[tuple[str, str], tuple[FileUri, ...]] = field(default_factory=dict)

    def add(self, location: str) -> FileUri:
        """Add a file; returns what it is compared by."""
        uri = file_uri(location)
        bucket_uris = self._bucket_uris.get(uri[:2])
        if bucket_uris is None:
            # One object for all files of a bucket.
            bucket_uris = self._bucket_uris[uri[:2]] = (uri._replace(path=""),)
        path_uris = self.uris_by_path.setdefault(uri.path, bucket_uris)
        if path_uris is not bucket_uris and bucket_uris[0] not in path_uris:
            self.uris_by_path[uri.path] = path_uris + bucket_uris
        return uri

    def expect(self, location: str, size: int | None) -> None:
        """Add a file that must exist with this size."""
        uri = self.add(location)
        expected_file = ExpectedFile(location, self._bucket_uris[uri[:2]][0], size)
        if self.expected_by_path.setdefault(uri.path, expected_file) != expected_file:
            self.doubtful_locations.add(location)


@dataclass
class Comparison:
    """A listing of a table's location, compared with what the metadata names, file by file.

    What the listing has is no longer expected, and doubtful if it has another size; these files
    must be looked up one by one. ``orphan_doubts`` say why an orphan may be none. Each listed byte
    is in one of ``referenced_bytes``, ``orphan_bytes`` and ``unjudged_bytes``, of files that are
    too young or hidden.
    """

    named_files: NamedFiles
    location: str
    older_than_ms: int
    specs: Iterable[PartitionSpec] = ()
    orphan_count: int = 0
    orphan_bytes: int = 0
    referenced_bytes: int = 0
    unjudged_bytes: int = 0
    orphan_examples: list[str] = field(default_factory=list)
    orphan_doubts: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.location_uri = listing_uri(self.location)
        self.location_path = self.location_uri.path.rstrip("/")
        # Iceberg's PartitionAwareHiddenPathFilter.
        self._field_prefixes = tuple(
            f"{partition_field.name}="
            for spec in self.specs
            for partition_field in spec.fields
            if partition_field.name.startswith(("_", "."))
        )

    def is_hidden(self, path: str) -> bool:
        """Tell whether ``remove_orphan_files`` leaves out a path from the location: a name in it
        begins with _ or a dot, and not with a partition field of that name.
        """
        if "/_" not in f"/{path}" and "/." not in f"/{path}":
            return False
        return any(
            path_part.startswith(("_", ".")) and not path_part.startswith(self._field_prefixes)
            for path_part in path.split("/")
        )

    def compare(self, file: ListedFile) -> None:
        """Compare one file of the listing."""
        if file.is_repeated_link:
            self._add_doubt(
                f"{self._location_of(file.path)} is a link to a folder of the table, so its files "
                "have two paths"
            )
            return
        full_path = f"{self.location_path}/{file.path}"
        named_uris = self.named_files.uris_by_path.get(full_path)
        is_named = named_uris is not None and any(
            named_uri.names_file(self.location_uri) for named_uri in named_uris
        )
        if is_named:
            self.referenced_bytes += file.size
            expected_file = self.named_files.expected_by_path.get(full_path)
            if expected_file is not None and expected_file.bucket_uri.names_file(self.location_uri):
                del self.named_files.expected_by_path[full_path]
                if expected_file.size not in (None, file.size):
                    self.named_files.doubtful_locations.add(expected_file.location)
        is_too_young = file.modified_ms >= self.older_than_ms
        is_unjudged = is_too_young or self.is_hidden(file.path)
        if not is_named and (is_unjudged or named_uris is not None):
            self.unjudged_bytes += file.size
        if is_unjudged:
            return
        if named_uris is None:
            self._add_orphan(file)
        elif mismatched_uri := next(
            (named_uri for named_uri in named_uris if not named_uri.names_file(self.location_uri)),
            None,
        ):
            self._add_doubt(
                f"the metadata names {_uri_text(mismatched_uri, full_path)}, and the location has "
                f"{_uri_text(self.location_uri, full_path)}: only a person can say whether they "
                "are one file"
            )

    def _add_orphan(self, file: ListedFile) -> None:
        self.orphan_count += 1
        self.orphan_bytes += file.size
        self.orphan_examples = nsmallest(
            EXAMPLES, [*self.orphan_examples, self._location_of(file.path)]
        )
        if file.linked_folder:
            self._add_doubt(
                f"{self._location_of(file.linked_folder)} is a link to another folder, whose files "
                "may belong to something else"
            )

    def _location_of(self, path: str) -> str:
        """A listed path, spelled as ``remove_orphan_files`` spells it."""
        if is_local(self.location):
            return f"file:{self.location_path}/{path}"
        return f"{self.location.rstrip('/')}/{path}"

    def _add_doubt(self, reason: str) -> None:
        if not self.orphan_doubts:
            self.orphan_doubts.append(reason)

    def doubt_links(self) -> None:
        """Doubt the orphans of a local folder if the metadata names files in it through links that
        lead elsewhere in the folder: the same files have two paths.
        """
        if not self.orphan_count or not is_local(self.location):
            return
        real_path = os.path.realpath(self.location_path or "/")
        local_named_paths = {
            path
            for path, named_uris in self.named_files.uris_by_path.items()
            if named_uris[0].is_on_disk
        }
        named_folders = {folder_of(path) for path in local_named_paths}
        for link_path, link_target in symbolic_link_targets(named_folders).items():
            is_inside = f"{link_path}/".startswith(f"{self.location_path}/")
            if is_inside and link_target == f"{real_path}{link_path[len(self.location_path) :]}":
                continue  # a link above the location
            is_named = link_path in local_named_paths or link_path in named_folders
            if is_named and f"{link_target}/".startswith(f"{real_path}/"):
                self._add_doubt(
                    f"the metadata names files by {link_path}, which is a link to {link_target}"
                )

    def doubt_listing(self, sizes_by_location: Mapping[str, int | None]) -> None:
        """Doubt the orphans if a file that was looked up exists, and the listing should have had
        it: the storage lists a name in another way than it is asked for.
        """
        for path, expected_file in self.named_files.expected_by_path.items():
            if (
                sizes_by_location[expected_file.location] is not None
                and path.startswith(f"{self.location_path}/")
                and not self.is_hidden(path[len(self.location_path) + 1 :])
                and expected_file.bucket_uri.names_file(self.location_uri)
            ):
                self._add_doubt(f"the listing does not have {expected_file.location}, which exists")

    @property
    def storage_facts(self) -> StorageFacts:
        """The orphan files, all of them weighed."""
        has_files_elsewhere = any(
            not path.startswith(f"{self.location_path}/") for path in self.named_files.uris_by_path
        )
        return StorageFacts(
            self.older_than_ms,
            self.orphan_count,
            tuple(self.orphan_examples),
            self.orphan_bytes,
            self.orphan_count,
            unjudged_bytes=self.unjudged_bytes,
            referenced_bytes=None if has_files_elsewhere else self.referenced_bytes,
        )


def _uri_text(uri: FileUri, path: str) -> str:
    scheme_prefix = f"{uri.scheme}:" if uri.scheme else ""
    return f"{scheme_prefix}//{uri.authority}{path}" if uri.authority else f"{scheme_prefix}{path}"
