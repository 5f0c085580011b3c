"""One run a table at a time: who holds a table, whether he still lives, and a claim kept alive."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Protocol

from icekit.errors import ClaimLost, IcekitError, TableClaimed
from icekit.owner import Owner
from icekit.units import span

#: Seconds that a claim holds after its last heartbeat, and seconds between heartbeats.
LEASE = 120
HEARTBEAT = 20


def now_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class Claim:
    """A run's hold on a table, from ``claimed_ms`` on; it lapses when nobody renews it.

    ``table`` is the name that the run knows it by. ``uuid`` is the table's own, so that two names
    of one catalog do not let two runs in; None for a table without one.
    """

    table: str
    run_id: str
    owner: Owner
    claimed_ms: int
    renewed_ms: int
    uuid: str | None = None

    @property
    def key(self) -> str:
        """What the claim is kept by."""
        return self.uuid or self.table

    @property
    def expires_ms(self) -> int:
        """When the lease is over, in milliseconds since 1970 by the owner's clock."""
        return self.renewed_ms + LEASE * 1000

    def is_dead(self, now: int) -> bool:
        """Tell whether it may be taken over at ``now``."""
        return now >= self.expires_ms or self.owner.has_ended()

    def is_held_by(self, run_id: str, owner: Owner) -> bool:
        """Tell whether that process holds it for that run."""
        return (self.run_id, self.owner) == (run_id, owner)

    def to_json(self) -> str:
        """Write it as JSON."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, document: str) -> Claim:
        """Read what :meth:`to_json` has written."""
        data = json.loads(document)
        return cls(**{**data, "owner": Owner(**data["owner"])})


def claim_over(there: Sequence[Claim], table: str, uuid: str | None, run_id: str, now: int) -> Claim:
    """The claim that a run may put in the place of those that are there: at most one by the table's UUID, and one by its name.

    (By name is how a table without a UUID is claimed, and how earlier versions claimed every table.)
    Raises :class:`~icekit.errors.TableClaimed` when another run holds the table, or
    another living process the same run. Claiming again what one holds renews it.
    """
    owner = Owner.here()
    for one in there:
        if not one.is_held_by(run_id, owner) and not one.is_dead(now):
            raise _claimed(one, table, now)
    mine = Claim(table, run_id, owner, now, now, uuid)
    return next((replace(one, renewed_ms=now) for one in there if one.key == mine.key and one.is_held_by(run_id, owner)), mine)


def _claimed(there: Claim, table: str, now: int) -> TableClaimed:
    known_as = f" (which that run knows as {there.table})" if there.table != table else ""
    return TableClaimed(
        f"{table}{known_as} is being compacted by run {there.run_id} on {there.owner.host} (process {there.owner.pid}), "
        f"which began {span(max(0, now - there.claimed_ms))} ago and gave a sign of life {span(max(0, now - there.renewed_ms))} ago; "
        "wait for it; or stop it, and resume it with --resume."
    )


def renewed(there: Sequence[Claim], table: str, run_id: str, now: int) -> Claim:
    """A run's own claim with a new lease; raises :class:`~icekit.errors.ClaimLost` if it is not there.

    A lease that is over and that nobody took is simply renewed.
    """
    for one in there:
        if one.is_held_by(run_id, Owner.here()):
            return replace(one, renewed_ms=now)
    taken = f"run {there[0].run_id} on {there[0].owner.host} has taken it over" if there else "another run has taken it over, and ended"
    raise ClaimLost(f"Run {run_id} has lost its claim on {table}: {taken}; let that run finish, then resume what is left with --resume.")


class Claims(Protocol):
    """What :func:`claimed` needs of a ledger."""

    def claim(self, table: str, run_id: str, uuid: str | None = None) -> None:
        """Take the table, or raise TableClaimed."""

    def heartbeat(self, table: str, run_id: str, uuid: str | None = None) -> None:
        """Renew the lease, or raise ClaimLost."""

    def release(self, table: str, run_id: str, uuid: str | None = None) -> None:
        """Let go of the run's own claim."""


@dataclass(frozen=True, slots=True)
class Held:
    """A claim that is kept alive; ``lost`` is set once it cannot be relied on any more."""

    table: str
    run_id: str
    lost: threading.Event


@contextlib.contextmanager
def claimed(
    ledger: Claims, table: str, run_id: str, uuid: str | None = None, *, interval: float = HEARTBEAT, lease: float = LEASE
) -> Iterator[Held]:
    """Hold a table (of this UUID, if it has one) for a run: claim it, send a heartbeat every ``interval`` seconds, release it.

    Raises :class:`~icekit.errors.TableClaimed` at once if another run holds the table.
    What runs inside looks at ``lost`` before each action: it is set when another run took
    the table over, and when no heartbeat got through for ``lease`` seconds.
    """
    # Taken before the claim is made, as its lease begins somewhere after this.
    sent = time.monotonic()
    ledger.claim(table, run_id, uuid)
    held = Held(table, run_id, threading.Event())
    ended = threading.Event()

    def arm(since: float) -> threading.Timer:
        # On a thread of its own, as a heartbeat may hang instead of failing.
        timer = threading.Timer(max(0.0, since + lease - time.monotonic()), held.lost.set)
        timer.daemon = True
        timer.start()
        return timer

    def beat(timer: threading.Timer) -> None:
        while not ended.wait(interval):
            sent = time.monotonic()
            try:
                ledger.heartbeat(table, run_id, uuid)
            except ClaimLost:
                held.lost.set()
                break
            except Exception:
                # The catalog or the disk may be back before the lease is over.
                continue
            timer.cancel()
            timer = arm(sent)
        timer.cancel()

    thread = threading.Thread(target=beat, args=[arm(sent)], name=f"icekit-claim-{run_id}", daemon=True)
    thread.start()
    try:
        yield held
    finally:
        ended.set()
        # A heartbeat under way would be in the way of the release; it brings back nothing if it comes later.
        thread.join(timeout=HEARTBEAT)
        # What cannot be released lapses by itself, and what happened inside says more.
        with contextlib.suppress(IcekitError):
            ledger.release(table, run_id, uuid)
