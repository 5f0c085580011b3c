"""Copy the notebooks for a reader, so that running them leaves icekit's own as they are."""

import contextlib
import hashlib
import json
import shutil
from pathlib import Path

import nbformat
from nbformat.sign import NotebookNotary

from icekit.report.notebook_file import notebook_path

#: In the folder: for each copy, what its cells were when it was made.
RECORD = ".copied.json"
_OWN = ("[0-9][0-9]_*.ipynb", "*.md", "lessons/[0-9][0-9]_*.ipynb", "lessons/*.md")


def update_copies(folder: Path) -> list[str]:
    """Bring a folder of copies up to date, and let Jupyter trust the results that notebooks come
    with; returns the names of files of somebody's own that stay although icekit's differ.

    A copy whose cells nobody has changed is replaced when its notebook changes, and otherwise keeps
    the results of its last run. A copy that somebody has changed stays.
    """
    source_folder = notebook_path().parent
    (folder / "lessons").mkdir(parents=True, exist_ok=True)
    record_file = folder / RECORD
    recorded_digests: dict[str, str] = {}
    with contextlib.suppress(OSError, ValueError):
        recorded_digests = json.loads(record_file.read_bytes())
    notary = NotebookNotary()  # type: ignore[no-untyped-call]
    outdated_names = []
    for source_path in sorted(
        path for file_pattern in _OWN for path in source_folder.glob(file_pattern)
    ):
        relative_name = source_path.relative_to(source_folder).as_posix()
        copy_path = folder / relative_name
        source_digest = _cells_digest(source_path)
        copy_digest = _cells_digest(copy_path) if copy_path.exists() else None
        if (
            copy_digest in {None, recorded_digests.get(relative_name)}
            and copy_digest != source_digest
        ):
            shutil.copyfile(source_path, copy_path)
            copy_digest = source_digest
        if copy_digest == source_digest:
            recorded_digests[relative_name] = source_digest
        elif recorded_digests.get(relative_name) != source_digest:
            outdated_names.append(relative_name)
        if source_path.suffix == ".ipynb":
            notary.sign(nbformat.read(source_path, 4))  # type: ignore[no-untyped-call]
    record_file.write_text(json.dumps(recorded_digests))
    return outdated_names


def _cells_digest(path: Path) -> str:
    """A digest of what a person writes in a file: of a notebook the cells without their results."""
    content = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        # It may be a notebook no more.
        with contextlib.suppress(ValueError, KeyError, TypeError):
            cells = json.loads(content)["cells"]
            content = json.dumps([(cell["cell_type"], "".join(cell["source"])) for cell in cells])
    return hashlib.sha256(content.encode()).hexdigest()
