"""Save facts and findings as JSON with a schema version, and read them back."""

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from icekit.common import frozen
from icekit.common.errors import ParameterError
from icekit.common.saving import as_data, versions, write_json, write_text
from icekit.common.secrets import MASK, is_secret
from icekit.health.diagnose.findings import Finding, Findings, Thresholds
from icekit.health.facts.files import Totals
from icekit.health.facts.model import TableFacts
from icekit.health.facts.rollup import worst_partitions
from icekit.iceberg.file_kind import Kind

#: Goes up by one when a field changes its meaning or is removed; an added field does not count.
SCHEMA_VERSION = 4
#: Partitions that a report document lists; the others are counted in ``facts_left_out``.
MAX_PARTITIONS = 1000
#: Characters from which on a document gives only the length of a table property.
MAX_PROPERTY = 10_000


@frozen
class FindingDocument(Finding):
    """A finding as JSON; ``severity`` in lower case."""

    severity: str  # type: ignore[assignment]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportDocument:
    """The report of one table as JSON."""

    schema_version: int = SCHEMA_VERSION
    catalog: str
    table: str
    status: str
    collected_at: str
    collector: str
    seconds: float
    versions: Mapping[str, str]
    thresholds: Thresholds
    totals: Mapping[Kind, Totals]
    findings: Sequence[FindingDocument]
    facts: TableFacts
    facts_left_out: Mapping[str, int]


def document(facts: TableFacts, findings: Findings, thresholds: Thresholds) -> ReportDocument:
    """The report of one table; :func:`write` masks secrets."""
    document_facts, left_out_counts = _bounded_facts(facts)
    iceberg_versions = {"iceberg": facts.iceberg_version} if facts.iceberg_version else {}
    return ReportDocument(
        catalog=facts.catalog,
        table=facts.name,
        status=findings.status,
        collected_at=dt.datetime.fromtimestamp(facts.collected_at_ms / 1000, dt.UTC).isoformat(),
        collector=facts.collector,
        seconds=round(facts.seconds, 3),
        versions=versions() | iceberg_versions,
        thresholds=thresholds,
        totals={kind: facts.total(kind) for kind in Kind},
        findings=[FindingDocument(**asdict(f) | {"severity": str(f.severity)}) for f in findings],
        facts=document_facts,
        facts_left_out=left_out_counts,
    )


def write(facts: TableFacts, findings: Findings, thresholds: Thresholds, path: Path) -> Path:
    """Write the document; a reader never sees a half-written one."""
    return write_json(path, document(facts, findings, thresholds))


def save_facts(facts: TableFacts, path: Path) -> Path:
    """Save complete facts, so that :func:`load_facts` returns equal ones; for icekit's own use."""
    return write_text(path, json.dumps({"facts": as_data(facts)}), is_clean=True)


@cache
def _facts_adapter() -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(TableFacts)


def load_facts(path: Path) -> TableFacts:
    """The facts in a report document or in a file of :func:`save_facts`; raises ParameterError for
    another file, and for a document that leaves some out.
    """
    try:
        json_document = json.loads(path.read_bytes())
        facts: TableFacts = _facts_adapter().validate_python(json_document["facts"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ParameterError(
            f"{path} holds no facts of a table ({type(error).__name__}); icekit report writes a "
            "JSON report with them for each table."
        ) from None
    if json_document.get("facts_left_out"):
        raise ParameterError(
            f"{path} has only a part of the facts, as the table has too many partitions for a "
            f"report. Observe the table instead: {facts.name}@{facts.snapshot_id}."
        )
    return facts


def _bounded_facts(facts: TableFacts) -> tuple[TableFacts, dict[str, int]]:
    """Only the facts of the worst partitions, if there are more partitions than a document lists;
    of long properties only their length.
    """
    # Not the start of a value, whose end could cut a secret in two that is then not masked.
    properties = {
        name: MASK
        if is_secret(name)
        else property_value
        if len(property_value) <= MAX_PROPERTY
        else f"({len(property_value):,} characters)"
        for name, property_value in facts.properties.items()
    }
    dropped_partitions = set(facts.partitions())
    if len(dropped_partitions) > MAX_PARTITIONS:
        dropped_partitions -= {group.partition for group in worst_partitions(facts, MAX_PARTITIONS)}
    else:
        dropped_partitions = set()
    max_rows = MAX_PARTITIONS * 10
    shortened_fields: dict[str, Any] = {
        "groups": tuple(g for g in facts.groups if g.partition not in dropped_partitions),
        "sequences": tuple(s for s in facts.sequences if s.partition not in dropped_partitions)[
            :max_rows
        ],
        "unapplied": facts.unapplied[:max_rows],
        "recent": tuple(p for p in facts.recent if p not in dropped_partitions),
    }
    left_out_counts = {"partitions": len(dropped_partitions)} | {
        name: len(getattr(facts, name)) - len(field_rows)
        for name, field_rows in shortened_fields.items()
    }
    return (
        replace(facts, properties=properties, **shortened_fields),
        {name: row_count for name, row_count in left_out_counts.items() if row_count},
    )
