"""A session with an older Iceberg (``ICEKIT_ICEBERG``), as other engines of a lake may have."""

import json
import os
from pathlib import Path

import pytest

from icekit.common.sql import display_name
from tests.child import python
from tests.deletes.tables import Table

pytestmark = pytest.mark.spark


def test_iceberg_1_11_converts_all_equality_deletes(table: Table, tmp_path: Path) -> None:
    """Its metadata tables leave delete files out under some filters on ``content``."""
    table.create().insert("VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    table.sql("DELETE FROM {t} WHERE id = 3")
    table.delete("id", "SELECT 1")
    before, history = table.rows(), table.history()
    environment = {**os.environ, "ICEKIT_ICEBERG": "1.11.0"}

    done = python(
        "-m",
        "icekit",
        "convert",
        display_name(table.name),
        "--execute",
        "--ledger",
        tmp_path / "ledger.db",
        "--output",
        tmp_path,
        env=environment,
        timeout=300,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "no row changed" in done.stdout
    (document,) = (json.loads(path.read_text()) for path in tmp_path.glob("*.json"))
    assert document["versions"]["iceberg"] == "1.11.0"
    table.files.refresh()
    table.hold(before, history)
    assert table.equality_deletes() == 0
