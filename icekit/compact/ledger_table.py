"""The ledger as an Iceberg table of the same catalog, for schedulers on several machines.

How a claim is exclusive. A claim is one row, and is put by one MERGE that either inserts it
or replaces exactly the row that was read before (compared by its whole document). As the
MERGE has a WHEN MATCHED clause it is planned copy-on-write as an overwrite, and with
serializable isolation Iceberg refuses its commit if any file that could hold the claim's
row was added or taken away since the snapshot that it read
(``OverwriteFiles.validateNoConflictingData`` and ``validateNoConflictingDeletes``). An
insert-only MERGE is planned as an append, which nothing refuses. Of two that read the same
snapshot one commits; the other is refused, reads again, and finds who was faster. All this
rests on the catalog swapping metadata atomically, which every Iceberg catalog promises.
Measured with four sessions at once: in 12 rounds 36 commits were refused and 12 claims made;
in 4 rounds of insert-only MERGEs none was refused, and each left four claims.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from icekit.catalog.lake import Lake
from icekit.compact.claims import Claim, claim_over, now_ms, renewed
from icekit.compact.ledger_api import Ledger
from icekit.compact.ledger_rows import DOLLAR, Overtaken, Rows, text
from icekit.compact.records import DISPROVED, ActionRecord, RunRecord, from_json, key_of, latest, to_json
from icekit.owner import Owner
from icekit.sql import display_name

_ROWS_PER_MERGE = 200


class TableLedger(Ledger):
    """A ledger in ``<catalog>.<namespace>.ledger``, made by the first write; threads may share it.

    A write takes about a second, as it is a commit;
    clocks of the machines that use it must agree to well within a lease.
    """

    def __init__(self, lake: Lake, namespace: str = "icekit", *, clock: Callable[[], int] = now_ms) -> None:
        """``clock`` gives milliseconds since 1970."""
        self._rows = Rows(lake, lake.sql_name(lake.identifier(f"{namespace}.ledger")), clock)
        self._clock = clock

    def __repr__(self) -> str:
        return f"TableLedger({display_name(self._rows.name)})"

    def claim(self, table: str, run_id: str, uuid: str | None = None) -> None:
        """Take a table by one MERGE that replaces what was read, or nothing."""

        def attempt() -> None:
            there = self._claims_on(*{uuid or table, table})
            claim = claim_over(there, table, uuid, run_id, self._clock())
            self._put_claim(there, claim, insert=True)
            for old in there:
                if old.key != claim.key:
                    self._delete(old)

        self._rows.patiently(attempt, writing=True)

    def heartbeat(self, table: str, run_id: str, uuid: str | None = None) -> None:
        """Renew the lease, or raise ClaimLost."""

        def attempt() -> None:
            there = self._claims_on(uuid or table)
            # It brings back no claim that was taken over and let go meanwhile.
            self._put_claim(there, renewed(there, table, run_id, self._clock()), insert=False)

        self._rows.patiently(attempt, writing=True)

    def release(self, table: str, run_id: str, uuid: str | None = None) -> None:
        """Delete the claim that this process holds for this run."""

        def attempt() -> None:
            for there in self._claims_on(uuid or table):
                if there.is_held_by(run_id, Owner.here()):
                    self._delete(there)

        self._rows.patiently(attempt)

    def claims(self) -> tuple[Claim, ...]:
        """Every claim on record."""
        return tuple(Claim.from_json(document) for document in self._rows.read("kind = 'claim'", "table_name"))

    def save_run(self, run: RunRecord) -> None:
        """Write a run; once it has ended the table is tidied."""
        self._rows.upsert([("run", key_of(run), run.table, run.run_id, to_json(run))])
        if run.ended_ms is not None:
            self._rows.tidy()

    def save_actions(self, actions: Iterable[ActionRecord]) -> None:
        """Write actions, 200 a commit; those of a plan written together stay in one file."""
        rows = [("action", key_of(action), action.table, action.run_id, to_json(action)) for action in actions]
        for start in range(0, len(rows), _ROWS_PER_MERGE):
            self._rows.upsert(rows[start : start + _ROWS_PER_MERGE])

    def run(self, run_id: str) -> RunRecord | None:
        """A run, or None."""
        found = self._rows.read(f"kind = 'run' AND run_id = {text(run_id)}")
        return from_json(RunRecord, found[0]) if found else None

    def last_run(self, table: str, statuses: Collection[str] | None = None) -> RunRecord | None:
        """The run over a table that was started last."""
        found = [from_json(RunRecord, d) for d in self._rows.read(f"kind = 'run' AND table_name = {text(table)}")]
        fitting = [run for run in found if statuses is None or run.status in statuses]
        return max(fitting, key=lambda run: run.started_ms, default=None)

    def disproved(self) -> tuple[RunRecord, ...]:
        """Runs whose proof failed, the oldest first."""
        status = f"get_json_object(document, '{DOLLAR}.status')"
        found = [from_json(RunRecord, d) for d in self._rows.read(f"kind = 'run' AND {status} = {text(DISPROVED)}")]
        return tuple(sorted(found, key=lambda run: run.started_ms))

    def actions(self, run_id: str) -> tuple[ActionRecord, ...]:
        """The newest attempt at each action of a run."""
        return latest(from_json(ActionRecord, d) for d in self._rows.read(f"kind = 'action' AND run_id = {text(run_id)}"))

    def outcomes(self, table: str | None = None, limit: int = 200) -> tuple[ActionRecord, ...]:
        """Done and measured actions, newest first."""
        of_table = "" if table is None else f" AND table_name = {text(table)}"
        # The column of the JSON, which is a string: a null in it is NULL.
        done = "get_json_object(document, '$.status') = 'done' AND get_json_object(document, '$.actual') IS NOT NULL".replace("$", DOLLAR)
        ended = f"CAST(get_json_object(document, '{DOLLAR}.ended_ms') AS BIGINT)"
        found = self._rows.read(f"kind = 'action' AND {done}{of_table}", f"{ended} DESC NULLS LAST, updated_ms DESC LIMIT {limit:d}")
        return tuple(from_json(ActionRecord, document) for document in found)

    def _claims_on(self, *keys: str) -> list[Claim]:
        """The claim under each key, the one put last."""
        wanted = ", ".join(text(key) for key in sorted(keys))
        found = [Claim.from_json(document) for document in self._rows.select(f"kind = 'claim' AND key IN ({wanted})", "updated_ms")]
        return list({claim.key: claim for claim in found}.values())

    def _delete(self, claim: Claim) -> None:
        self._rows.commit(
            f"DELETE FROM {self._rows.table} WHERE kind = 'claim' AND key = {text(claim.key)} AND document = {text(claim.to_json())}"
        )

    def _put_claim(self, there: Sequence[Claim], claim: Claim, *, insert: bool) -> None:
        # The WHEN MATCHED clause is there also when nothing is to be replaced: without it the MERGE is an append.
        before = next((one.to_json() for one in there if one.key == claim.key), "")
        matched = f"WHEN MATCHED AND t.document = {text(before)} THEN UPDATE SET *"
        row = ("claim", claim.key, claim.table, claim.run_id, claim.to_json())
        self._rows.merge([row], f"{matched} {'WHEN NOT MATCHED THEN INSERT *' if insert else ''}")
        if self._claims_on(claim.key) != [claim]:
            raise Overtaken
