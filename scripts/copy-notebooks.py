#!/usr/bin/env python3
"""``copy-notebooks.py FOLDER``: copy the notebooks into a folder of their reader's, so that running them changes nothing git knows of.

A copy whose cells nobody has changed is replaced when its notebook changes, and otherwise keeps the results of its last run. A copy that
somebody has changed stays.
"""

import contextlib
import hashlib
import json
import shutil
import sys
from pathlib import Path

NOTEBOOKS = Path(__file__).parent.parent / "notebooks"
#: In the folder: for each copy, what its cells were when it was made.
RECORD = ".copied.json"


def cells(path):
    """A digest of what a person writes in a file: of a notebook the cells without their results."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        with contextlib.suppress(ValueError, KeyError, TypeError):  # it may be a notebook no more
            text = json.dumps(
                [(c["cell_type"], "".join(c["source"])) for c in json.loads(text)["cells"]]
            )
    return hashlib.sha256(text.encode()).hexdigest()


def copied(folder):
    """Bring a folder of copies up to date; returns the names of copies that stay behind their notebook."""
    folder.mkdir(parents=True, exist_ok=True)
    record = folder / RECORD
    was = json.loads(record.read_text(encoding="utf-8")) if record.exists() else {}
    now, behind = dict(was), []
    for source in sorted(
        path
        for path in NOTEBOOKS.rglob("*")
        if path.suffix in (".ipynb", ".md") and ".ipynb_checkpoints" not in path.parts
    ):
        name = source.relative_to(NOTEBOOKS).as_posix()
        target, new = folder / name, cells(source)
        there = cells(target) if target.exists() else None
        if there == new:
            now[name] = new
        elif there in (None, was.get(name)):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
            now[name] = new
        elif was.get(name) != new:
            behind.append(name)
    record.write_text(json.dumps(now, indent=1), encoding="utf-8")
    return behind


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    for name in copied(folder):
        print(
            f"icekit: {folder / name} has changes of yours and stays; delete it to get the new version of the notebook",
            file=sys.stderr,
        )
    print(
        f"icekit: JupyterLab opens copies of the notebooks in {folder}, which git ignores",
        file=sys.stderr,
    )
