"""Connect to one catalog for both engines: Spark for large work, PyIceberg without a JVM; work on
it with a time limit, and close it.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from icekit.common.errors import TableNotFound, name_suggestion
from icekit.common.sql import Identifier, is_pattern, matches, parse_identifier
from icekit.common.waiting import run_within
from icekit.engine import interrupting
from icekit.engine.bridge import iceberg_version, temporary_catalog
from icekit.engine.cluster import SESSION_SETTINGS
from icekit.engine.column_types import Engine
from icekit.engine.profiles import profile
from icekit.engine.spark_conf import (
    ADDED,
    ICEBERG,
    SPARK,
    SparkCatalogConf,
    has_runtime,
    require_runtime,
    spark_conf,
)
from icekit.engine.tables import EmbeddedTables, ProfileTables, SessionTables, Tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EMBEDDED = "lake"
#: A choice: up to this much data, Spark's code is used too little to be compiled well.
SMALL_BYTES = 64 << 20

T = TypeVar("T")


class Lake:
    """A catalog and the two ways to access it.

    ``tables`` answers without a JVM where possible; ``spark`` starts Spark (or borrows the
    running session) on first use. A session that icekit did not start is
    used as it is and never stopped.
    """

    def __init__(
        self,
        catalog_name: str,
        catalog_conf: SparkCatalogConf | None,
        tables: Tables,
        borrowed_session: SparkSession | None = None,
    ) -> None:
        self.name = catalog_name
        self.tables = tables
        self._conf = catalog_conf
        self._borrowed = borrowed_session
        #: Whether Spark, if this lake starts it, is for one command on little data.
        self.is_small_work = False
        #: Whether it is for one command whose heavy work is that of Python's workers.
        self.is_light_work = False
        #: Clean-up to do before the lake is closed, such as dropping clones.
        self.until_closed = contextlib.ExitStack()
        # Clones must go before pyspark's own exit handler takes the session away; it was registered
        # first and runs last.
        atexit.register(self.until_closed.close)

    @classmethod
    def connect(cls, catalog: str | None = None, *, spark: SparkSession | None = None) -> Self:
        """Connect as :func:`icekit.connect` does."""
        catalog_name = catalog or EMBEDDED
        borrowed_session = _borrowed_session(spark)
        if borrowed_session is not None:
            is_session_needed = spark is not None or _has_own_catalog(
                borrowed_session, catalog_name
            )
            if is_session_needed:
                remedy = "Use a session of that, or leave it out."
                require_runtime(borrowed_session.version, "session", remedy)
            elif not has_runtime(borrowed_session.version):
                # Other work's; what needs no Spark goes on without it.
                borrowed_session = None
        if borrowed_session is not None and _has_own_catalog(borrowed_session, catalog_name):
            return cls(
                catalog_name, None, SessionTables(catalog_name, borrowed_session), borrowed_session
            )
        if catalog_name == EMBEDDED:
            tables = EmbeddedTables(embedded_path())
            return cls(
                catalog_name, spark_conf(catalog_name, tables.properties), tables, borrowed_session
            )
        profile_properties = profile(catalog_name, EMBEDDED)
        return cls(
            catalog_name,
            spark_conf(catalog_name, profile_properties),
            ProfileTables(catalog_name, profile_properties),
            borrowed_session,
        )

    def __repr__(self) -> str:
        return f"Lake({self.name!r}, {self.tables})"

    @cached_property
    def spark(self) -> SparkSession:
        """The Spark session, with this catalog configured."""
        from icekit.engine import session

        if self._borrowed is not None:
            if self._conf is not None:
                session.add_catalog(self._borrowed, self._conf)
            return self._borrowed
        assert self._conf is not None  # only a catalog of a borrowed session has none
        if isinstance(self.tables, EmbeddedTables):
            self.tables.path.mkdir(parents=True, exist_ok=True)
        return session.own_session(
            self._conf, small_work=self.is_small_work, light_work=self.is_light_work
        )

    @cached_property
    def engine(self) -> Engine:
        """The Spark and the Iceberg that work on the tables: those of the session, or those that
        icekit would start.
        """
        if self._borrowed is None:
            return Engine(SPARK, ICEBERG)
        session_iceberg = ""
        with contextlib.suppress(Exception):  # no Iceberg in the session, or not yet
            session_iceberg = iceberg_version(self._borrowed, self.name)
        return Engine(".".join(self._borrowed.version.split(".")[:2]), session_iceberg)

    @property
    def spark_is_running(self) -> bool:
        """Whether Spark can be used now without starting it."""
        return self._borrowed is not None or "spark" in self.__dict__

    def session_conf(self) -> Mapping[str, str] | None:
        """Settings of the session that people use here: Iceberg's cache of delete files, cores and
        memory; None for icekit's own.
        """
        if self._borrowed is None:
            return None
        session_settings = {k: self._borrowed.conf.get(k, None) for k in SESSION_SETTINGS}
        return {k: str(v) for k, v in session_settings.items() if v is not None}

    def identifier(self, table: str | Identifier) -> Identifier:
        """Parse a table name, of which a leading catalog name is removed; an identifier stays as it
        is.
        """
        if not isinstance(table, str):
            return table
        name_parts = parse_identifier(table)
        return name_parts[1:] if len(name_parts) > 2 and name_parts[0] == self.name else name_parts

    def match(
        self, patterns: Iterable[str], unmatched_messages: list[str] | None = None
    ) -> list[Identifier]:
        """The tables that match names or globs (``db.*``, see
        :func:`icekit.common.sql.pattern_levels`), in order, without repeats.

        A plain name is not checked; a glob that matches nothing raises
        :class:`~icekit.common.errors.TableNotFound`. With a list for them, sentences about such
        globs are added to it, and the method raises only if nothing at all was found.
        """
        matched_names: dict[Identifier, None] = {}
        unmatched_sentences: list[str] = []
        all_names: list[Identifier] | None = None
        for pattern in patterns:
            if not is_pattern(pattern):
                matched_names[self.identifier(pattern)] = None
                continue
            all_names = self.tables.names() if all_names is None else all_names
            matching_names = [
                table_name for table_name in all_names if matches(pattern, table_name, self.name)
            ]
            matched_names.update(dict.fromkeys(matching_names))
            if not matching_names:
                suggestion = name_suggestion(
                    pattern, {f"{table_name[0]}.*" for table_name in all_names}
                )
                unmatched_sentences.append(
                    f"No table of catalog {self.name!r} matches {pattern!r}{suggestion or '.'}"
                )
        if unmatched_messages is not None:
            unmatched_messages += unmatched_sentences
        if unmatched_sentences and (unmatched_messages is None or not matched_names):
            raise TableNotFound(" ".join(unmatched_sentences))
        return list(matched_names)

    def sql_name(self, table: Identifier) -> Identifier:
        """The identifier with the catalog in front, as Spark SQL wants it."""
        return (self.name, *table)

    def close(self) -> None:
        """Close both engines; stops the Spark session only if icekit started it."""
        self.until_closed.close()
        self.tables.close()
        if "spark" not in self.__dict__:
            return
        from icekit.engine import session

        if session.is_own_session(self.spark):
            session.stop_own_session()
            del self.__dict__["spark"]


def embedded_path() -> Path:
    """The embedded lake's folder: ``ICEKIT_LAKE``, or ``./lake``."""
    return Path(os.environ.get("ICEKIT_LAKE") or "lake").expanduser().resolve()


def _borrowed_session(requested_session: SparkSession | None) -> SparkSession | None:
    """The session that is given, or else is running, unless icekit started it."""
    # Importing the module takes a tenth of the time of a look.
    is_pyspark_loaded = sys.modules.get("pyspark") is not None
    if requested_session is None and not is_pyspark_loaded and not os.environ.get("SPARK_REMOTE"):
        return None
    from icekit.engine import session

    running_session = requested_session or session.running_session()
    return (
        None
        if running_session is None or session.is_own_session(running_session)
        else running_session
    )


def _has_own_catalog(spark: SparkSession, catalog_name: str) -> bool:
    """Tell whether the session has a catalog of that name which icekit has not put there."""
    setting_prefix = f"spark.sql.catalog.{catalog_name}"
    return (
        spark.conf.get(setting_prefix, None) is not None
        and spark.conf.get(f"{setting_prefix}.{ADDED}", None) is None
    )


@contextlib.contextmanager
def session_in_catalog(lake: Lake) -> Iterator[SparkSession]:
    """The session, with the lake's catalog as the current one for a while, so that names in a
    statement are found where they are meant.
    """
    with temporary_catalog(lake.spark, lake.name):
        yield lake.spark


class _TimedLake:
    """A lake for one piece of work: what its thread does in Spark through it ends with ``stop``."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self.stop = interrupting.Stop()
        self.until_done = contextlib.ExitStack()

    def __getattr__(self, attribute_name: str) -> Any:
        return getattr(self._lake, attribute_name)

    @cached_property
    def spark(self) -> SparkSession:
        # Once nobody waits for the work, it would start Spark again for nobody.
        self.stop.check()
        spark = self._lake.spark
        self.until_done.enter_context(self.stop.cancel_jobs_on_stop(spark))
        return spark


def run_in_time(lake: Lake, seconds: float | None, work: Callable[[Any], T]) -> T:
    """Do work on the lake in a separate thread; raises
    :class:`~icekit.common.waiting.DeadlineExceeded` after this many seconds (None: no limit).

    When the caller stops waiting, at the limit or after Ctrl-C, the Spark work is cancelled, and
    the work gets no Spark any more. Work without Spark cannot be stopped: its thread is left
    behind, and ends with what it was waiting for or with the process.
    """
    timed_lake = _TimedLake(lake)

    def timed_work() -> T:
        with timed_lake.until_done:
            return work(timed_lake)

    try:
        return run_within(seconds, timed_work)
    finally:
        timed_lake.stop.set()


#: Seconds that Spark is given to stop when the process was asked to end; its JVM goes with the
# process in any case.
_GOING_SECONDS = 20.0


def close_at_end(lake: Lake, ending: interrupting.Ending) -> None:
    """Close the lake, and acknowledge ``ending`` if the process was asked to end by then or
    meanwhile.

    The JVM may be gone, or not answer, or still be at work on the call that a signal has cut short.
    So a process that ends stops Spark from another thread, which has a connection of its own, and
    does not wait for it forever.
    """
    try:
        if not ending.is_requested:
            lake.close()
            return
    except BaseException as error:
        if not ending.explains(error):
            raise
    ending.acknowledge()
    try:
        run_within(_GOING_SECONDS, lake.close)
    except BaseException as error:
        if not ending.explains(error):
            raise
