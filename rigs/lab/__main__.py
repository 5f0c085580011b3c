"""Build the lab's tables with Spark and write both archives anew: ``python -m rigs.lab``.

``--lake FOLDER`` keeps the tables that were built there, and takes those that it has.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import icekit
from icekit.common.units import size
from icekit.engine.lake import Lake
from icekit.health.facts.metadata_file import load_metadata
from icekit.iceberg.moved_paths import MovedPaths
from icekit.iceberg.pack import PackWriter
from icekit.iceberg.paths import normal_path_of
from icekit.iceberg.relocation import Relocation
from icekit.learn.lab import ARCHIVE, INDEX, NAMESPACE, OTHER_ARCHIVE
from rigs.lab import TABLES, build
from rigs.lab.workbench import folder_of

#: The tables of the package's archive: most findings in few bytes.
SHIPPED = tuple(
    "small_files position_deletes deletion_vectors equality_deletes unmatched_deletes missing_files "
    "duplicate_files orphan_files frequent_commits heavy_metadata delays delay_corrections "
    "repeated_identifiers narrow_manifest unreadable_metadata vectors_rewritten bloom_filters "
    "merge_on_read_on_v1 managed_elsewhere target_too_small misfiled_deletes".split()
)
# When a table was packed: so long after its last commit.
_AGE_MS = 120_000


def fingerprint() -> str:
    """A hash of the code that builds the tables."""
    folder = Path(__file__).parent
    builders = [folder / f"{name}.py" for name in _BUILDERS]
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in builders)).hexdigest()


_BUILDERS = ("damaged", "deletes", "flights", "tables", "workbench")


def main() -> None:
    """Build what is missing, and pack all tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lake", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        os.environ["ICEKIT_LAKE"] = str((arguments.lake or Path(temporary)).resolve())
        lake = icekit.connect()
        build(lake)
        packed_archive(lake, ARCHIVE, SHIPPED)
        packed_archive(lake, OTHER_ARCHIVE, clone_only_tables())
        write_index()


def packed_archive(lake: Lake, archive: Path, names: Sequence[str]) -> None:
    """Write an archive anew from the tables of a lake."""
    archive.unlink(missing_ok=True)
    with PackWriter(archive) as writer:
        for name in names:
            add(writer, lake, name)
    print(f"{archive}: {len(names)} tables, {size(archive.stat().st_size)}")


def write_index() -> None:
    """Describe both archives, for who lists the lab or checks that they belong together."""
    described: list[dict[str, Any]] = [
        {
            "name": name,
            "illness": TABLES[name].illness,
            "findings": sorted(TABLES[name].findings),
            "is-shipped": name in SHIPPED,
        }
        for name in (*SHIPPED, *clone_only_tables())
    ]
    hashes = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in (ARCHIVE, OTHER_ARCHIVE)
        if path.exists()
    }
    index = {"built-by": fingerprint(), "archives": hashes, "tables": described}
    INDEX.write_text(json.dumps(index, indent=1) + "\n", encoding="utf-8")


def clone_only_tables() -> list[str]:
    """The tables that only a clone has."""
    return [name for name in TABLES if name not in SHIPPED]


def add(writer: PackWriter, lake: Lake, name: str) -> None:
    """Pack a table with every file in its folder, also those that nothing names."""
    source = lake.tables.source((NAMESPACE, name))
    folder = folder_of(lake, name)
    survey = Relocation(source.read, MovedPaths({str(folder): "/t/table"}, "/t/elsewhere"))
    named_paths = {
        normal_path_of(file.old_path).path for file in survey.files(source.metadata_location)
    }
    unreferenced = {
        str(path): int(path.stat().st_mtime * 1000)
        for path in sorted(folder.rglob("*"))
        # The checksums that Hadoop keeps are those of files with other paths in them.
        if path.is_file() and path.suffix != ".crc" and str(path) not in named_paths
    }
    writer.add(
        (NAMESPACE, name),
        source.metadata_location,
        source.read,
        with_data=True,
        unreferenced_changed_at_ms=unreferenced,
        packed_at_ms=load_metadata(source)["last-updated-ms"] + _AGE_MS,
    )


if __name__ == "__main__":
    main()
