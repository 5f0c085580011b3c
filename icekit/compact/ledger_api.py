"""What a ledger answers and promises, whatever it is kept in."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable

from icekit.compact.claims import Claim
from icekit.compact.records import ActionRecord, RunRecord


class Ledger(ABC):
    """The record of runs, of their actions' attempts, and of who holds which table.

    Tables are named ``catalog.db.table`` as :func:`icekit.sql.display_name` does. Any
    method raises :class:`~icekit.errors.LedgerUnusable` when the ledger cannot be read or
    written. Texts are saved with every known secret masked. A ledger that nothing was ever
    written to is empty, and reading it makes nothing.
    """

    @abstractmethod
    def claim(self, table: str, run_id: str, uuid: str | None = None) -> None:
        """Take a table for a run, or raise :class:`~icekit.errors.TableClaimed`.

        A table is claimed by its own ``uuid``, whatever it is called; one without, by its name.
        A dead claim is taken over: one whose lease is over, or whose process on this host
        lives no more. A process may claim again what it holds for the same run.
        """

    @abstractmethod
    def heartbeat(self, table: str, run_id: str, uuid: str | None = None) -> None:
        """Renew the lease; raises :class:`~icekit.errors.ClaimLost` if another run took the table over."""

    @abstractmethod
    def release(self, table: str, run_id: str, uuid: str | None = None) -> None:
        """Let go of a table; another process's or run's claim stays."""

    @abstractmethod
    def claims(self) -> tuple[Claim, ...]:
        """Every claim on record, by table, also those that are dead."""

    @abstractmethod
    def save_run(self, run: RunRecord) -> None:
        """Write a run, in the place of what was written of it before."""

    @abstractmethod
    def save_actions(self, actions: Iterable[ActionRecord]) -> None:
        """Write many actions at once, as :meth:`save_action` does one."""

    def save_action(self, action: ActionRecord) -> None:
        """Write an action, in the place of its record with the same starting snapshot."""
        self.save_actions([action])

    @abstractmethod
    def run(self, run_id: str) -> RunRecord | None:
        """A run, or None."""

    @abstractmethod
    def last_run(self, table: str, statuses: Collection[str] | None = None) -> RunRecord | None:
        """The run over a table that was started last, among those in a status of ``statuses``."""

    @abstractmethod
    def disproved(self) -> tuple[RunRecord, ...]:
        """Every run whose proof failed and that no person has cleared yet."""

    @abstractmethod
    def actions(self, run_id: str) -> tuple[ActionRecord, ...]:
        """The newest attempt at each action of a run, by ordinal."""

    @abstractmethod
    def outcomes(self, table: str | None = None, limit: int = 200) -> tuple[ActionRecord, ...]:
        """Done and measured actions, of one table or of all, that ended last; newest first."""

    def close(self) -> None:  # noqa: B027 - most have nothing open
        """Let go of what is open; a session or a catalog that was lent stays."""
