"""An action finds its columns by their ids, whatever another job has called them since."""

from typing import Any

import pytest

from icekit.maintain.action import Action
from icekit.maintain.prediction import Prediction
from icekit.maintain.run.current_names import with_current_names
from icekit.rows.rewrite.rewrite_order import RewriteOrder


def schema(schema_id: int, *names: str) -> dict[str, Any]:
    """A schema of two columns, the second of them in a struct."""
    first, *inner = names
    fields = [{"id": 3, "name": name, "type": "long"} for name in inner]
    struct = {"id": 2, "name": "s", "type": {"type": "struct", "fields": fields}}
    return {"schema-id": schema_id, "fields": [{"id": 1, "name": first, "type": "long"}, struct]}


METADATA = {
    "format-version": 2,
    "current-schema-id": 1,
    "schemas": [schema(0, "id", "x"), schema(1, "number", "y")],
}


@pytest.mark.parametrize(
    ("planned", "now"),
    [("id", "number"), ("number", "number"), ("s.x", "s.y"), ("gone", None), (None, None)],
)
def test_files_are_taken_in_the_order_of_the_column_by_its_name_of_now(
    planned: str | None, now: str | None
) -> None:
    order = RewriteOrder(files_by=planned)
    action = Action("a1", "rewrite_data_files", "lake", ("t",), "", Prediction(), order=order)

    assert with_current_names(action, METADATA).order.files_by == now
