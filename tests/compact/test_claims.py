"""What a ledger keeps of claims, runs and actions."""

import json
from dataclasses import replace

from icekit.compact.actual import Actual
from icekit.compact.claims import ActionRecord, RunRecord, from_json, to_json
from icekit.status import Status
from tests.compact.records import ACTION, RUN


def test_a_record_is_read_without_the_fields_that_this_version_does_not_have() -> None:
    action = replace(
        ACTION, status=Status.DONE, actual=Actual(files_in=3), seconds=2.5, snapshot_ids=(2**62,)
    )
    document = json.loads(to_json(action)) | {"later": 1}
    document["predicted"]["is_sampled"] = False

    assert from_json(ActionRecord, json.dumps(document)) == action
    assert from_json(RunRecord, to_json(RUN)) == RUN
