"""Find the tables of each kind of catalog, read their files, and say what to do when that fails.

Each kind answers the same questions: which tables exist, where is a table's current
metadata, and what are the bytes at a location. The embedded lake and a PyIceberg profile need
no JVM for this; a catalog known only to a Spark session does.
"""

from __future__ import annotations

import contextlib
import re
import sqlite3
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from icekit.common import frozen
from icekit.common.errors import (
    EXTRAS,
    CatalogUnreachable,
    ExtraMissing,
    FileGone,
    FormatTooNew,
    IcekitError,
    MetadataUnreadable,
    ParameterError,
    PermissionDenied,
    ProfileError,
    TableNotFound,
    causes,
    first_line,
    require_library,
)
from icekit.common.secrets import is_secret, remember_secrets
from icekit.common.sql import Identifier, display_name, identifier, parse_identifier
from icekit.common.terminal import quiet_errors
from icekit.common.units import first_names
from icekit.common.waiting import run_within
from icekit.engine.bridge import has_bridge, load_table, read_bytes
from icekit.engine.errors import (
    explain,
    explain_errors,
    no_metadata_error,
    not_found_error,
    view_error,
)
from icekit.engine.file_systems import FileSystem, LocalFiles, file_system_of_io
from icekit.engine.metadata_tables import metadata_table
from icekit.engine.profiles import check_configuration, no_catalog_message
from icekit.iceberg.paths import is_local, local_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


T = TypeVar("T")

# A catalog that has not answered by then is down for the person who waits; importing its client is
# part of it. Listing all of a large catalog may take longer.
DEADLINE_SECONDS = 20.0
LISTING_SECONDS = 300.0


@frozen
class TableSource:
    """Where a table's metadata is, how to read bytes from its storage, and how to list it; None if
    only Spark can.
    """

    metadata_location: str
    read: Callable[[str], bytes]
    file_system: FileSystem | None = None


class Tables(Protocol):
    """The interface of every kind of catalog."""

    def names(self) -> list[Identifier]:
        """Every table of the catalog, sorted."""

    def names_in(self, namespace: Identifier) -> list[Identifier]:
        """The tables of one namespace, sorted; none if there is no such namespace."""
        return [table_name for table_name in self.names() if table_name[:-1] == namespace]

    def source(self, table: Identifier) -> TableSource:
        """Find one table; raises TableNotFound with near names, or NotATable for a view."""

    def close(self) -> None:
        """Close connections; of most kinds there are none."""
        return


def _answer_within(catalog_name: str, seconds: float, question: Callable[[], T]) -> T:
    """The answer of a catalog, or the error for one that is down."""
    try:
        return run_within(seconds, question)
    except TimeoutError:
        raise CatalogUnreachable(
            f"Catalog {catalog_name!r} did not answer within {seconds:.0f} s. Check its uri and "
            "the network, and in a Spark session the table's metadata file: Iceberg keeps retrying "
            "a damaged one."
        ) from None


def read_local(location: str) -> bytes:
    """Read a file of this machine, given as a path or a ``file:`` URI."""
    return read_or_refuse(location, Path(local_path(location)).read_bytes)


def read_or_refuse(location: str, read: Callable[[], bytes]) -> bytes:
    """Read, and name the file that is gone or forbidden."""
    try:
        return run_within(60, read)
    except FileNotFoundError:
        raise FileGone(
            f"{location} is missing. Restore the file, or go back to a snapshot or a metadata "
            "file that does not need it."
        ) from None
    except (OSError, ValueError) as error:
        if _is_forbidden(error):
            raise PermissionDenied(
                f"Reading {location} is not permitted ({first_line(error)}). Check the profile's "
                "keys, or ask for read access to the table's location."
            ) from None
        raise MetadataUnreadable(f"{location} cannot be read: {first_line(error)}.") from None


# pyarrow has no class for it: "When reading …: AWS Error ACCESS_DENIED during HeadObject operation:
# …".
_FORBIDDEN_BY_AWS = re.compile(
    r"(?:.{0,3000}: )?AWS Error (?:ACCESS_DENIED|SIGNATURE_DOES_NOT_MATCH|INVALID_ACCESS_KEY_ID) "
    r"during \w+ operation\b.*",
    re.S,
)


def _is_forbidden(error: OSError | ValueError) -> bool:
    """Whether a storage refused access; the clients of Azure and Google have the status of HTTP."""
    http_status = getattr(error, "status_code", None) or getattr(error, "code", None)
    return (
        isinstance(error, PermissionError)
        or http_status in (401, 403)
        or _FORBIDDEN_BY_AWS.fullmatch(str(error)) is not None
    )


# As Iceberg's JdbcCatalog (schema version V1) and pyiceberg's SqlCatalog make them.
_CATALOG_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS iceberg_tables (catalog_name VARCHAR(255) NOT NULL, "
    "table_namespace VARCHAR(255) NOT NULL, table_name VARCHAR(255) NOT NULL, metadata_location "
    "VARCHAR(1000), previous_metadata_location VARCHAR(1000), iceberg_type VARCHAR(5), PRIMARY KEY "
    "(catalog_name, table_namespace, table_name))",
    "CREATE TABLE IF NOT EXISTS iceberg_namespace_properties (catalog_name VARCHAR(255) NOT NULL, "
    "namespace VARCHAR(255) NOT NULL, property_key VARCHAR(255) NOT NULL, property_value "
    "VARCHAR(1000) NOT NULL, PRIMARY KEY (catalog_name, namespace, property_key))",
)


class EmbeddedTables(Tables):
    """The embedded lake, asked with the standard library alone: a first look takes no imports."""

    def __init__(self, lake_path: Path) -> None:
        self.path = lake_path

    def __repr__(self) -> str:
        return f"embedded lake at {self.path}"

    @property
    def database(self) -> Path:
        """The catalog's database; without it, there is no lake yet."""
        return self.path / "catalog.db"

    @property
    def properties(self) -> dict[str, str]:
        """The properties of a pyiceberg catalog of the same tables."""
        uri = f"sqlite:///{self.path}/catalog.db"
        warehouse = f"{self.path}/warehouse"
        return {"type": "sql", "uri": uri, "warehouse": warehouse}

    def catalog(self, catalog_name: str) -> Any:
        """The same tables as a new pyiceberg catalog, to be closed by who asks for it."""
        check_configuration()
        require_library("sqlalchemy", "The embedded lake as a catalog of PyIceberg")
        from pyiceberg.catalog.sql import SqlCatalog

        return SqlCatalog(catalog_name, **self.properties)

    def _query(self, sql: str, *arguments: str) -> list[tuple[Any, ...]]:
        database = self.database
        if not database.exists():
            raise TableNotFound(no_catalog_message(self.path))
        # Where it may write, SQLite takes back what a killed writer did not commit.
        uri = f"{database.as_uri()}?mode=rw"
        try:
            with contextlib.closing(
                sqlite3.connect(uri, uri=True, timeout=DEADLINE_SECONDS)
            ) as connection:
                return connection.execute(sql, arguments).fetchall()
        except sqlite3.DatabaseError as error:
            # SQLite has no code of its own for it.
            if re.fullmatch("no such table: iceberg_[a-z_]+", str(error)):
                return []
            raise CatalogUnreachable(
                f"The embedded lake's catalog {database} cannot be read: {error}."
            ) from None

    def register(
        self, catalog_name: str, tables: Mapping[Identifier, str], *, replace: bool = False
    ) -> None:
        """Enter tables by their metadata files, all or none; makes the catalog's database where
        there is none. A table of that name stays, unless ``replace``.

        Raises :class:`~icekit.common.errors.ParameterError` for a name that is in use.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(self.database, timeout=DEADLINE_SECONDS)
        with contextlib.closing(connection), connection:
            connection.execute("BEGIN IMMEDIATE")
            for create_statement in _CATALOG_SCHEMA:
                connection.execute(create_statement)
            for table_name, metadata_location in tables.items():
                namespace = ".".join(table_name[:-1])
                key = catalog_name, namespace, table_name[-1]
                connection.execute(
                    "INSERT OR IGNORE INTO iceberg_namespace_properties VALUES (?, ?, 'exists', "
                    "'true')",
                    key[:2],
                )
                insert_verb = "INSERT OR REPLACE" if replace else "INSERT OR IGNORE"
                insert_sql = f"{insert_verb} INTO iceberg_tables VALUES (?, ?, ?, ?, NULL, 'TABLE')"
                if not connection.execute(insert_sql, (*key, metadata_location)).rowcount:
                    raise ParameterError(
                        f"{display_name(table_name)} exists in the lake {self.path}."
                    )

    def names(self) -> list[Identifier]:
        """Every table of the embedded lake."""
        catalog_rows = self._query(
            "SELECT CAST(table_namespace AS TEXT), CAST(table_name AS TEXT) FROM iceberg_tables "
            "WHERE coalesce(iceberg_type, 'TABLE') = 'TABLE'"
        )
        return sorted((*namespace.split("."), table_name) for namespace, table_name in catalog_rows)

    def existing_names(self) -> set[Identifier]:
        """Every table; none where there is no lake yet."""
        return set(self.names()) if self.database.exists() else set()

    def source(self, table: Identifier) -> TableSource:
        """Look the table up by namespace and name."""
        catalog_rows = self._query(
            "SELECT metadata_location, coalesce(iceberg_type, 'TABLE') FROM iceberg_tables WHERE "
            "table_namespace = ? AND table_name = ?",
            ".".join(table[:-1]),
            table[-1],
        )
        if not catalog_rows:
            raise not_found_error(table, self.names())
        metadata_location, entry_type = catalog_rows[0]
        if entry_type != "TABLE":
            raise view_error(table)
        if not isinstance(metadata_location, str) or not metadata_location:
            raise no_metadata_error(table)
        return TableSource(metadata_location, read_local, LocalFiles())


class SessionTables(Tables):
    """A catalog known only to a running Spark session."""

    def __init__(self, catalog_name: str, spark: SparkSession) -> None:
        self.name = catalog_name
        self.spark = spark

    def __repr__(self) -> str:
        return f"catalog {self.name!r} of the running Spark session"

    def names(self) -> list[Identifier]:
        """Every table, as ``SHOW TABLES`` lists them."""
        table_names: set[Identifier] = set()

        def add_tables_below(parent: Identifier = ()) -> None:
            for (namespace_text,) in self.spark.sql(
                f"SHOW NAMESPACES IN {identifier(self.name, *parent)}"
            ).collect():
                # Spark puts odd parts in backticks here.
                nested_namespace = parse_identifier(f"{namespace_text}.t")[:-1]
                if len(nested_namespace) > len(parent):
                    table_names.update(self._tables_of(nested_namespace))
                    add_tables_below(nested_namespace)

        _answer_within(self.name, LISTING_SECONDS, add_tables_below)
        return sorted(table_names)

    def names_in(self, namespace: Identifier) -> list[Identifier]:
        """The tables of one namespace, as ``SHOW TABLES`` lists them."""
        try:
            table_names = _answer_within(
                self.name, LISTING_SECONDS, lambda: self._tables_of(namespace)
            )
        except Exception as error:
            explained_error = explain(error, (self.name, *namespace, "*"))
            if isinstance(explained_error, TableNotFound):
                return []
            raise explained_error from None
        return sorted(table_names)

    def _tables_of(self, namespace: Identifier) -> list[Identifier]:
        table_rows = self.spark.sql(f"SHOW TABLES IN {identifier(self.name, *namespace)}").collect()
        return [(*namespace, row["tableName"]) for row in table_rows if not row["isTemporary"]]

    def source(self, table: Identifier) -> TableSource:
        """Not without Spark: the collector asks the session itself."""
        # A running session may still be fetching its cluster when it is asked first.
        return _answer_within(self.name, 60, lambda: self._source((self.name, *table)))

    def _source(self, table: Identifier) -> TableSource:
        try:
            with quiet_errors():
                self.spark.sql(f"REFRESH TABLE {identifier(*table)}")
            ask = _source_by_bridge if has_bridge(self.spark) else _source_by_sql
            metadata_location, read_file = ask(self.spark, table)
        except Exception as error:
            explained_error = explain(error, table)
            if isinstance(explained_error, TableNotFound):
                with contextlib.suppress(Exception):
                    explained_error = not_found_error(table[1:], self.names(), self.name)
            raise explained_error from None

        def read_explained(location: str) -> bytes:
            with explain_errors(table):
                return read_file(location)

        return TableSource(metadata_location, read_explained)


def _source_by_bridge(spark: SparkSession, table: Identifier) -> tuple[str, Callable[[str], bytes]]:
    iceberg_table = load_table(spark, table)
    metadata_location = str(iceberg_table.operations().current().metadataFileLocation())
    return metadata_location, partial(read_bytes, iceberg_table.io())


def _source_by_sql(spark: SparkSession, table: Identifier) -> tuple[str, Callable[[str], bytes]]:
    def read(location: str) -> bytes:
        escaped_path = re.sub(r"([\[\]{}*?\\])", r"\\\1", location)
        file_rows = spark.read.format("binaryFile").load(escaped_path).select("content").collect()
        return bytes(file_rows[0][0])

    log = metadata_table(spark, table, "metadata_log_entries")
    newest_entries = log.orderBy("timestamp", ascending=False).select("file").limit(1).collect()
    return str(newest_entries[0][0]), read


class ProfileTables(Tables):
    """A catalog that pyiceberg connects to by its profile."""

    def __init__(self, profile_name: str, properties: Mapping[str, str]) -> None:
        self.name = profile_name
        self.properties = properties
        self._catalog: Any = None
        # pyiceberg opens and closes one connection to Hive around each question, whichever thread
        # asks.
        self._turn_lock = (
            threading.Lock() if properties.get("type") == "hive" else contextlib.nullcontext()
        )

    def __repr__(self) -> str:
        return f"profile {self.name!r}"

    @property
    def catalog(self) -> Any:
        """The pyiceberg catalog; the first use contacts it, within the deadline."""
        if self._catalog is None:
            self._check_database()
            from pyiceberg.catalog import load_catalog

            self._catalog = self._ask(lambda: load_catalog(self.name, **self.properties))
        return self._catalog

    def _check_database(self) -> None:
        """Raise ProfileError if the SQLite file is missing: SQLite would make an empty one."""
        uri = self.properties.get("uri", "")
        if not uri.startswith("sqlite"):
            return
        require_library("sqlalchemy", f"Catalog {self.name!r}")
        from sqlalchemy import make_url

        url = make_url(uri)
        database_path = (url.database or ":memory:").removeprefix("file:")
        if (
            ":memory:" not in database_path
            and "mode" not in url.query
            and not Path(database_path).exists()
        ):
            raise ProfileError(
                f"Catalog {self.name!r}: there is no database {database_path}. Correct the uri of "
                "the profile."
            )

    def _check_name(self) -> None:
        """Raise ProfileError if a database has tables or namespaces, but only of catalogs with
        other names.
        """
        database_engine = getattr(self.catalog, "engine", None)
        if database_engine is None:
            return
        from pyiceberg.catalog.sql import IcebergNamespaceProperties, IcebergTables
        from sqlalchemy import select

        with database_engine.connect() as connection:
            catalog_names = {
                catalog_name
                for catalog_model in (IcebergTables, IcebergNamespaceProperties)
                for catalog_name in connection.scalars(
                    select(catalog_model.catalog_name).distinct()
                )
            }
        if catalog_names and self.name not in catalog_names:
            raise ProfileError(
                f"The database of profile {self.name!r} has no table of that catalog, but tables "
                f"of {first_names(sorted(catalog_names), 5)}. Give the profile the catalog's name."
            )

    def _ask(self, question: Callable[[], T], seconds: float | None = None) -> T:
        """Answer within the deadline, or say in one sentence why not."""
        seconds = DEADLINE_SECONDS if seconds is None else seconds
        from pyiceberg.exceptions import (
            AuthorizationExpiredError,
            ForbiddenError,
            UnauthorizedError,
        )

        try:
            return _answer_within(self.name, seconds, question)
        except Exception as error:
            if (
                isinstance(error, IcekitError)
                or _is_not_found(error)
                or _unknown_format_version(error)
            ):
                raise
            _remember_request_secrets(error)
            if isinstance(error, (ForbiddenError, UnauthorizedError, AuthorizationExpiredError)):
                raise PermissionDenied(
                    f"Catalog {self.name!r} refused access: {first_line(error)}. Check the "
                    "profile's credential or token."
                ) from None
            if missing_library := _missing_library(error):
                if any(missing_library in libraries for libraries in EXTRAS.values()):
                    raise ExtraMissing(f"Catalog {self.name!r}", missing_library) from None
                raise CatalogUnreachable(
                    f"Catalog {self.name!r} needs {missing_library}, which is not installed. Run "
                    f"`pip install {missing_library}`."
                ) from None
            if damage_text := _damage_text(error):
                raise MetadataUnreadable(
                    f"Catalog {self.name!r} returns damaged metadata: {damage_text}. Restore the "
                    "metadata file, or point the catalog at the previous one (register_table)."
                ) from None
            raise CatalogUnreachable(
                f"Catalog {self.name!r} cannot be used ({type(error).__name__}): "
                f"{first_line(error)}. Check its profile."
            ) from None

    def names(self) -> list[Identifier]:
        """Every table of every namespace, nested ones included."""
        catalog = self.catalog

        def names_below_of(parent: tuple[str, ...] = ()) -> list[Identifier]:
            names_below: list[Identifier] = []
            for namespace in catalog.list_namespaces(parent):
                if len(namespace) <= len(parent):
                    continue
                names_below += [tuple(table) for table in catalog.list_tables(namespace)]
                if self.properties.get("type") != "glue":
                    names_below += names_below_of(tuple(namespace))
            return names_below

        # Hive and Glue connect at the first question: a dead one is told within the deadline.
        self._ask(catalog.list_namespaces)
        table_names = sorted(set(self._ask(names_below_of, LISTING_SECONDS)))
        if not table_names:
            self._ask(self._check_name)
        return table_names

    def names_in(self, namespace: Identifier) -> list[Identifier]:
        """The tables of one namespace, asked of that alone."""
        try:
            table_names = self._ask(lambda: self.catalog.list_tables(namespace), LISTING_SECONDS)
        except Exception as error:
            if not _is_not_found(error):
                raise
            return []
        return sorted(map(tuple, table_names))

    def source(self, table: Identifier) -> TableSource:
        """Load the table through pyiceberg, which also reads its metadata file."""
        try:
            catalog = self.catalog
            with self._turn_lock:
                pyiceberg_table = self._ask(lambda: catalog.load_table(table))
        except Exception as error:
            if format_version := _unknown_format_version(error):
                raise FormatTooNew(display_name(table), format_version) from None
            if not _is_not_found(error):
                raise
            if self._is_view(table):
                raise view_error(table) from None
            sibling_names: list[Identifier] = []
            with contextlib.suppress(IcekitError):
                sibling_names = self.names_in(table[:-1])
            if not sibling_names:
                self._ask(self._check_name)
            raise not_found_error(table, sibling_names, self.name) from None
        io = pyiceberg_table.io

        def read(location: str) -> bytes:
            if is_local(location):
                return read_local(location)
            return read_or_refuse(location, lambda: _read_all(io, location))

        return TableSource(pyiceberg_table.metadata_location, read, file_system_of_io(io))

    def close(self) -> None:
        """Close the pyiceberg catalog, if it was opened."""
        if self._catalog is not None:
            self._catalog.close()
            self._catalog = None

    def _is_view(self, table: Identifier) -> bool:
        try:
            return bool(self.catalog.view_exists(table))
        except Exception:  # most catalogs know no views
            return False


def _missing_library(error: BaseException) -> str:
    """The library whose import failed below an error; empty if it was something else. PyIceberg
    names another one.
    """
    library_names = (e.name or "" for e in causes(error) if isinstance(e, ModuleNotFoundError))
    return next(library_names, "").partition(".")[0]


def _read_all(io: Any, location: str) -> bytes:
    with io.new_input(location).open() as stream:
        return bytes(stream.read())


def _invalid_field(error: BaseException) -> Mapping[str, Any] | None:
    """The first field that pyiceberg cannot read in a table's metadata; None for other errors."""
    from pydantic import ValidationError

    # pyiceberg has an error of the same name around it.
    validation_error = next(
        (cause for cause in causes(error) if isinstance(cause, ValidationError)), None
    )
    return None if validation_error is None else validation_error.errors()[0]


def _unknown_format_version(error: BaseException) -> str:
    """The format version that pyiceberg does not know, if it is a later one; empty otherwise."""
    invalid_field = _invalid_field(error)
    if invalid_field is None or invalid_field["type"] != "union_tag_invalid":
        return ""
    tag = str(invalid_field["ctx"]["tag"])
    is_later = (
        "format" in str(invalid_field["ctx"]["discriminator"]) and tag.isdigit() and int(tag) > 0
    )
    return tag if is_later else ""


def _damage_text(error: BaseException) -> str:
    """What pyiceberg cannot read in a table's metadata; empty for other errors."""
    invalid_field = _invalid_field(error)
    return (
        ""
        if invalid_field is None
        else f"{'.'.join(map(str, invalid_field['loc']))}: {invalid_field['msg']}"
    )


def _remember_request_secrets(error: BaseException) -> None:
    """Note what the failed request was signed with: a token that a server handed out stands in no
    profile.
    """
    for cause in causes(error):
        # Of the library requests.
        if isinstance(cause, OSError) and (request := getattr(cause, "request", None)) is not None:
            secret_headers = {
                f"header.{k}": str(v) for k, v in request.headers.items() if is_secret(k)
            }
            remember_secrets(secret_headers)


def _is_not_found(error: BaseException) -> bool:
    return type(error).__name__ in {
        "NoSuchTableError",
        "NoSuchNamespaceError",
        "NoSuchIcebergTableError",
    }
