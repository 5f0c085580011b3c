"""What a scratch table is called, where its files go, and which process it belongs to."""

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

#: Where scratch tables are registered, and the name of the folder that holds theirs.
NAMESPACE = "icekit_scratch"

#: Table properties of a scratch table: what it is made of, by whom, when, what it writes to, and whether no table can need that.
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
    """What the names of all scratch tables of a table begin with: every catalog and storage takes these letters."""
    return re.sub(r"[^a-z0-9_]", "_", table[-1].lower())[:40] + "_"


def scratch_name(table: Identifier) -> Identifier:
    """A name for a scratch table of ``table`` that no other has."""
    return NAMESPACE, f"{stem(table)}{time.strftime('%Y%m%d%H%M%S', time.gmtime())}_{uuid.uuid4().hex[:8]}"


def scratch_folder(location: str, made: Identifier) -> str:
    """The folder for what a scratch table writes: beside the location of its table; in it, where that is a whole bucket."""
    location = location.rstrip("/")
    home = location.rpartition("/")[0] if urlsplit(location).path.strip("/") else location
    return f"{home}/{NAMESPACE}/{made[-1]}"


def marker(made: Identifier) -> str:
    """What the path of every file in a scratch table's own folder contains, and no other path."""
    return f"/{NAMESPACE}/{made[-1]}/"


def owner_properties(
    lake: Lake, table: Identifier, scratch: str | None = None, uuid: str | None = None, *, own_files: bool = False
) -> dict[str, str]:
    """The table properties by which :func:`icekit.sandbox.stale_clones` finds a scratch table whose process has died.

    ``table`` is what the scratch table is made of, ``uuid`` that table's own. ``scratch`` is its folder, as
    :func:`scratch_folder` names it; without one nothing but its entry in the catalog is removed. ``own_files``: nothing in the folder
    is ever handed to the table (a clone's files may be), so that it is removed without looking for such.
    """
    return owned(lake.sql_name(table), scratch, uuid, own_files=own_files)


def owned(table: Identifier, scratch: str | None = None, uuid: str | None = None, *, own_files: bool = False) -> dict[str, str]:
    """The same for a table that is named with its catalog."""
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
        # Said in either case: a clone begins with the properties of what it is made of.
        OWN_FILES: str(own_files).lower(),
    }
    return {key: value for key, value in properties.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Ownership:
    """What a scratch table's properties say; ``of`` is without its catalog, ``started_ms`` since 1970.

    ``own_files``: its table cannot have come to need what is in its folder.
    """

    of: Identifier | None
    owner: Owner
    started_ms: int | None
    scratch: str | None
    own_files: bool = False


def ownership(properties: Mapping[str, str]) -> Ownership | None:
    """Read what :func:`owner_properties` has written; None for a table that is nobody's scratch."""
    if OF not in properties:
        return None
    try:
        of: Identifier | None = parse_identifier(properties[OF])[1:]
    except InvalidName:
        of = None
    pid = _number(properties.get(PID))
    # Without a pid it cannot be seen from anywhere whether it lives.
    host = properties.get(HOST, "") if pid is not None else ""
    owner = Owner(host, properties.get(BOOT_ID), properties.get(PID_NAMESPACE), pid or 0, _number(properties.get(PID_STARTED)))
    started_ms, own_files = _number(properties.get(STARTED_AT)), properties.get(OWN_FILES) == "true"
    return Ownership(of, owner, started_ms, properties.get(SCRATCH), own_files)


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"[0-9]{1,18}", text) else None
