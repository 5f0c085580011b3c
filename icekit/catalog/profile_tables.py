"""Find the tables of a catalog that a pyiceberg profile configures."""

from __future__ import annotations

import concurrent.futures
import contextlib
import importlib
import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import urlsplit

from icekit.catalog.source import DEADLINE_SECONDS, LISTING_SECONDS, Source, read_local, reading, within
from icekit.engine.errors import not_found, view_given
from icekit.errors import CatalogUnreachable, IcekitError, MetadataUnreadable, PermissionDenied, first_line, trace
from icekit.secrets import is_secret, remember
from icekit.sql import Identifier

T = TypeVar("T")


class ProfileTables:
    """A catalog that pyiceberg connects to by its profile."""

    def __init__(self, name: str, properties: Mapping[str, str]) -> None:
        self.name = name
        self.properties = properties
        self._catalog: Any = None
        # pyiceberg opens and closes one connection to Hive around each question, whichever thread asks.
        self._turn = threading.Lock() if properties.get("type") == "hive" else contextlib.nullcontext()

    def __str__(self) -> str:
        return f"profile {self.name!r}"

    @property
    def catalog(self) -> Any:
        """The pyiceberg catalog; the first use contacts it, within the deadline."""
        if self._catalog is None:
            from pyiceberg.catalog import load_catalog

            _import_client(self.name, self.properties)
            self._catalog = self._ask(lambda: load_catalog(self.name, **self.properties))
        return self._catalog

    def _ask(self, question: Callable[[], T], seconds: float | None = None) -> T:
        """Answer within the deadline, or say in one sentence why not."""
        seconds = DEADLINE_SECONDS if seconds is None else seconds
        from pyiceberg.exceptions import AuthorizationExpiredError, ForbiddenError, UnauthorizedError

        try:
            return within(seconds, question)
        except IcekitError:
            raise
        except concurrent.futures.TimeoutError:
            raise CatalogUnreachable(
                f"Catalog {self.name!r} did not answer within {seconds:.0f} s; check its uri and the network."
            ) from None
        except (ForbiddenError, UnauthorizedError, AuthorizationExpiredError) as error:
            _remember_sent(error)
            raise PermissionDenied(
                f"Catalog {self.name!r} refuses: {first_line(error)}. Check the profile's credential or token."
            ) from None
        except Exception as error:
            _remember_sent(error)
            if _is_missing(error):
                raise
            if damage := _damage(error):
                raise MetadataUnreadable(
                    f"Catalog {self.name!r} gives metadata that is damaged: {damage}; restore it, or point the catalog at the metadata file before it (register_table).",
                    detail=trace(error),
                ) from None
            raise CatalogUnreachable(
                f"Catalog {self.name!r} cannot be used ({type(error).__name__}): {first_line(error)}. Check its profile.",
                detail=trace(error),
            ) from None

    def names(self) -> list[Identifier]:
        """Every table of every namespace, nested ones included."""
        catalog = self.catalog

        def walk(parent: tuple[str, ...] = ()) -> list[Identifier]:
            found: list[Identifier] = []
            for namespace in catalog.list_namespaces(parent):
                if len(namespace) <= len(parent):
                    continue
                found += [tuple(table) for table in catalog.list_tables(namespace)]
                if self.properties.get("type") != "glue":
                    found += walk(tuple(namespace))
            return found

        # Hive and Glue connect at the first question: a dead one is told within the deadline.
        self._ask(catalog.list_namespaces)
        return sorted(set(self._ask(walk, LISTING_SECONDS)))

    def names_in(self, namespace: Identifier) -> list[Identifier]:
        """The tables of one namespace, asked of that alone."""
        try:
            return sorted(tuple(table) for table in self._ask(lambda: self.catalog.list_tables(namespace), LISTING_SECONDS))
        except Exception as error:
            if not _is_missing(error):
                raise
            return []

    def source(self, table: Identifier) -> Source:
        """Load the table through pyiceberg, which also reads its metadata file."""
        try:
            catalog = self.catalog
            with self._turn:
                loaded = self._ask(lambda: catalog.load_table(table))
        except Exception as error:
            if not _is_missing(error):
                raise
            if self._is_view(table):
                raise view_given(table) from None
            raise not_found(table, self._near(table)) from None
        io = loaded.io

        def read(location: str) -> bytes:
            if urlsplit(location).scheme in {"", "file"}:
                return read_local(location)
            return reading(location, lambda: _read_all(io, location))

        return Source(loaded.metadata_location, read)

    def close(self) -> None:
        """Close the pyiceberg catalog, if it was opened."""
        if self._catalog is not None:
            self._catalog.close()
            self._catalog = None

    def _near(self, table: Identifier) -> list[Identifier]:
        """Names to suggest: of the table's namespace, which a large catalog lists quickly."""
        try:
            return self._ask(lambda: [tuple(name) for name in self.catalog.list_tables(table[:-1])])
        except Exception:
            try:
                return self._ask(lambda: [(*namespace, table[-1]) for namespace in self.catalog.list_namespaces()])
            except IcekitError:
                return []

    def _is_view(self, table: Identifier) -> bool:
        try:
            return bool(self.catalog.view_exists(table))
        except Exception:  # most catalogs know no views
            return False


def _import_client(name: str, properties: Mapping[str, str]) -> None:
    """Import what talks to such a catalog and its storage.

    Imports take seconds on a busy machine and must not count against the deadline. pyiceberg reports a failed import itself.
    """
    from pyiceberg.catalog import infer_catalog_type

    with contextlib.suppress(Exception):
        kind = properties.get("type") or infer_catalog_type(name, dict(properties))
        importlib.import_module(f"pyiceberg.catalog.{getattr(kind, 'value', kind)}")
    with contextlib.suppress(Exception):
        importlib.import_module("pyiceberg.io.pyarrow")


def _read_all(io: Any, location: str) -> bytes:
    with io.new_input(location).open() as stream:
        return bytes(stream.read())


def _damage(error: BaseException) -> str:
    """The fields that pyiceberg cannot read in a table's metadata; empty where it was something else."""
    from pydantic import ValidationError

    # pyiceberg has an error of the same name around it.
    found = error if isinstance(error, ValidationError) else error.__cause__
    if not isinstance(found, ValidationError):
        return ""
    return "; ".join(f"{'.'.join(map(str, one['loc'])) or 'the document'}: {one['msg']}" for one in found.errors()[:3])


def _remember_sent(error: BaseException) -> None:
    """Note what the failed request was signed with: a token that a server handed out stands in no profile."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and (request := getattr(cause, "request", None)) is not None:  # of the library requests
            remember({f"header.{name}": str(value) for name, value in request.headers.items() if is_secret(name)})
        cause = cause.__cause__ or cause.__context__


def _is_missing(error: BaseException) -> bool:
    return type(error).__name__ in {"NoSuchTableError", "NoSuchNamespaceError", "NoSuchIcebergTableError"}
