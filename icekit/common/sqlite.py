"""Keep records in icekit's own SQLite file: one transaction per call; never overwrites a file that
is not icekit's.

A write is retried while other writers are in the way.
"""

import contextlib
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar, TypeVar
from urllib.parse import quote

from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random_exponential

T = TypeVar("T")

_TIMEOUT_SECONDS = 15.0
_PATIENCE_SECONDS = 60.0


class NotOurs(sqlite3.DatabaseError):
    """The file is no database, another program's, or of an icekit whose schema is no longer
    supported.
    """


class OtherSchema(sqlite3.DatabaseError):
    """The file was written by another version of icekit."""


class SqliteFile(ABC):
    """A file on a local disk, for the threads and processes of one machine.

    Every call is one transaction on its own connection: nothing is shared between threads or across
    a fork, and a process killed at any moment leaves what it had committed. Reading creates no
    file, and needs no write permission. Problems raise :meth:`unusable_error`.
    """

    #: Marks the file as this kind, in SQLite's own header.
    APPLICATION_ID: ClassVar[int]
    #: The schema that is read and written; kept as ``user_version``.
    SCHEMA_VERSION: ClassVar[int] = 1
    #: Whether readers go on while one writes.
    IS_WAL: ClassVar[bool] = False
    #: Of a folder that is made for the file.
    FOLDER_MODE: ClassVar[int] = 0o777

    path: Path

    @abstractmethod
    def create_tables(self, db: sqlite3.Connection) -> None:
        """Create the tables of an empty file, in the transaction of a write."""

    @abstractmethod
    def unusable_error(self, error: sqlite3.Error | OSError, *, is_writing: bool) -> Exception:
        """The error that says why the file cannot be used, and what to do."""

    def read(self, work: Callable[[sqlite3.Connection], T], empty_result: T) -> T:
        """Do work on what is there; ``empty_result`` where nothing is yet."""

        def transaction() -> T:
            if not self.path.exists():
                return empty_result
            with self._connection("rw") as db:
                db.execute("BEGIN")
                return empty_result if self._schema_version(db) is None else work(db)

        return self._with_retries(transaction, is_writing=False)

    def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do work in one immediate transaction; creates the file and its folder if necessary."""

        def transaction() -> T:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=self.FOLDER_MODE)
            with self._connection("rwc") as db:
                if self._schema_version(db) is None and self.IS_WAL:
                    db.execute("PRAGMA journal_mode = WAL")
                db.execute("BEGIN IMMEDIATE")
                # Asked inside: another process may have created the tables since.
                if self._schema_version(db) is None:
                    self.create_tables(db)
                    db.execute(f"PRAGMA application_id = {self.APPLICATION_ID}")
                    db.execute(f"PRAGMA user_version = {self.SCHEMA_VERSION}")
                work_result = work(db)
                db.execute("COMMIT")
                return work_result

        return self._with_retries(transaction, is_writing=True)

    @contextlib.contextmanager
    def _connection(self, mode: str) -> Iterator[sqlite3.Connection]:
        if not is_sqlite(self.path):
            raise NotOurs("file is not a database")
        uri = f"file:{quote(str(self.path.absolute()))}?mode={mode}"
        # Closing it rolls back what was not committed.
        with contextlib.closing(
            sqlite3.connect(uri, uri=True, timeout=_TIMEOUT_SECONDS, isolation_level=None)
        ) as db:
            yield db

    def _schema_version(self, db: sqlite3.Connection) -> int | None:
        """The file's schema, None before it has tables; raises for what is not of this kind, or of
        another version.
        """
        # One statement, and so one moment: another process may be making the tables right now.
        schema_version, application_id, table_count = db.execute(
            "SELECT (SELECT user_version FROM pragma_user_version), (SELECT application_id FROM "
            "pragma_application_id), count(*) FROM sqlite_master"
        ).fetchone()
        if not table_count and not schema_version and application_id in {0, self.APPLICATION_ID}:
            return None
        if application_id != self.APPLICATION_ID:
            raise NotOurs("it is another program's database")
        if schema_version != self.SCHEMA_VERSION:
            raise OtherSchema(
                f"schema {schema_version}, and this icekit knows {self.SCHEMA_VERSION}"
            )
        return int(schema_version)

    def _with_retries(self, work: Callable[[], T], *, is_writing: bool) -> T:
        # The first writers of a new file can be told that it is busy without being let wait.
        try:
            return _RETRYING(work)
        except (sqlite3.Error, OSError) as error:
            raise self.unusable_error(error, is_writing=is_writing) from error


def is_sqlite(path: Path) -> bool:
    """Tell whether a file is SQLite's, empty or not there; SQLite takes any of less than 512 bytes
    for an empty one, and writes over it.

    A device or a pipe is no file of SQLite's: /dev/null reads as an empty one.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        return False
    try:
        with path.open("rb") as opened_file:
            return opened_file.read(16) in {b"", b"SQLite format 3\0"}
    except FileNotFoundError:
        return True


def _is_busy(error: BaseException) -> bool:
    return isinstance(error, sqlite3.OperationalError) and error.sqlite_errorname.startswith(
        ("SQLITE_BUSY", "SQLITE_LOCKED")
    )


_RETRYING = Retrying(
    retry=retry_if_exception(_is_busy),
    stop=stop_after_delay(_PATIENCE_SECONDS),
    wait=wait_random_exponential(multiplier=0.01, max=1),
    reraise=True,
)
