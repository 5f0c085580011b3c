"""Name scratch tables and their folders, and say in their properties whose they are."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from icekit.catalog import Lake
from icekit.errors import InvalidName
from icekit.owner import Owner
from icekit.sql import Identifier, display_name, parse_identifier

#: The namespace of scratch tables, and the name of the folder for theirs.
NAMESPACE = "icekit_scratch"

#: Table properties of a scratch table: its source table, who made it, when, where it writes, and whether the source table cannot need those files.
OF = "icekit.clone.of"
OF_UUID = "icekit.clone.of-uuid"
HOST = "icekit.clone.host"
BOOT_ID = "icekit.clone.boot-id"
PID_NAMESPACE = "icekit.clone.pid-namespace"
PID = "icekit.clone.pid"
PID_STARTED = "icekit.clone.pid-started"
STARTED_AT = "icekit.clone.started-at"
SCRATCH = "icekit.clone.scratch"
OWN_FILES = "icekit.clone.own-files"


def stem(table: Identifier) -> str:
    """The common start of the names of a table's scratch tables: every catalog and storage accepts these characters."""
    return re.sub(r"[^a-z0-9_]", "_", table[-1].lower())[:40] + "_"


def scratch_name(table: Identifier) -> Identifier:
    """A new, unique name for a scratch table of ``table``."""
    return NAMESPACE, f"{stem(table)}{time.strftime('%Y%m%d%H%M%S', time.gmtime())}_{uuid.uuid4().hex[:8]}"


def scratch_folder(location: str, made: Identifier) -> str:
    """The folder that a scratch table writes to: next to the location of its table; inside, if the location is a complete bucket."""
    location = location.rstrip("/")
    home = location.rpartition("/")[0] if urlsplit(location).path.strip("/") else location
    return f"{home}/{NAMESPACE}/{made[-1]}"


def marker(made: Identifier) -> str:
    """A string that the path of every file in a scratch table's own folder contains, and no other path."""
    return f"/{NAMESPACE}/{made[-1]}/"


def owner_properties(
    lake: Lake, table: Identifier, scratch: str | None = None, uuid: str | None = None, *, own_files: bool = False
) -> dict[str, str]:
    """The table properties by which :func:`icekit.sandbox.stale_clones` finds a scratch table whose process died.

    ``table`` is the source table, ``uuid`` its UUID. ``scratch`` is the folder, as
    :func:`scratch_folder` names it; without a folder only the entry in the catalog is removed. ``own_files``: no file in the folder
    is ever added to the source table (a clone's files may be), so the folder is removed without looking for such files.
    """
    return owned(lake.sql_name(table), scratch, uuid, own_files=own_files)


def owned(table: Identifier, scratch: str | None = None, uuid: str | None = None, *, own_files: bool = False) -> dict[str, str]:
    """The same for a table name that includes the catalog."""
    owner = Owner.here()
    properties = {
        OF: display_name(table),
        OF_UUID: uuid,
        HOST: owner.host,
        BOOT_ID: owner.boot_id,
        PID_NAMESPACE: owner.pid_namespace,
        PID: str(owner.pid),
        PID_STARTED: None if owner.pid_started is None else str(owner.pid_started),
        STARTED_AT: str(time.time_ns() // 1_000_000),
        SCRATCH: scratch,
        # Always set: a clone starts with the properties of its source table.
        OWN_FILES: str(own_files).lower(),
        # Or a session with spark.wap.branch or spark.wap.id would read and write something else than the scratch table's own snapshot.
        "write.wap.enabled": "false",
    }
    return {key: value for key, value in properties.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Ownership:
    """The properties of a scratch table, parsed; ``of`` is without its catalog, ``started_ms`` since 1970.

    ``own_files``: the source table cannot need the files in its folder.
    """

    of: Identifier | None
    owner: Owner
    started_ms: int | None
    scratch: str | None
    own_files: bool = False


def ownership(properties: Mapping[str, str]) -> Ownership | None:
    """Parse the output of :func:`owner_properties`; None for a table that is not a scratch table."""
    if OF not in properties:
        return None
    try:
        of: Identifier | None = parse_identifier(properties[OF])[1:]
    except InvalidName:
        of = None
    pid = _number(properties.get(PID))
    # Without a process id nobody can see whether the process is running.
    host = properties.get(HOST, "") if pid is not None else ""
    owner = Owner(host, properties.get(BOOT_ID), properties.get(PID_NAMESPACE), pid or 0, _number(properties.get(PID_STARTED)))
    started_ms, own_files = _number(properties.get(STARTED_AT)), properties.get(OWN_FILES) == "true"
    return Ownership(of, owner, started_ms, properties.get(SCRATCH), own_files)


def is_clone_of(made: Identifier, properties: Mapping[str, str], table: Identifier, uuid: str | None) -> bool:
    """Tell whether a table is a scratch table of ``table``: by its name and folder too, because anybody can copy properties."""
    whose = ownership(properties)
    if whose is None or made[:-1] != (NAMESPACE,) or not f"{whose.scratch}/".endswith(marker(made)):
        return False
    known = properties.get(OF_UUID)
    return known == uuid if known and uuid else whose.of == table


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"[0-9]{1,18}", text) else None
