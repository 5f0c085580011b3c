"""What a finding says in figures, for tests that hold it to them."""

from icekit import Severity, diagnose
from icekit.diagnose.findings import Finding
from icekit.facts.model import TableFacts
from tests.golden import Golden

Told = tuple[Severity, tuple[str, ...], str, tuple[str, ...], int, int]


def named(facts: TableFacts, name: str, **options: object) -> Finding | None:
    """One finding by its name, None where it is not made."""
    return next((f for f in diagnose(facts, **options) if f.name == name), None)  # type: ignore[arg-type]


def required(facts: TableFacts, name: str, **options: object) -> Finding:
    """One finding by its name, which must be made."""
    finding = named(facts, name, **options)
    assert finding is not None, name
    return finding


def present(name: str, *every: TableFacts, **options: object) -> None:
    """See that the finding is made of each of these facts."""
    assert [named(facts, name, **options) is not None for facts in every] == [True] * len(every), (
        name
    )


def absent(name: str, *every: TableFacts, **options: object) -> None:
    """See that the finding is made of none of these facts."""
    assert [named(facts, name, **options) is not None for facts in every] == [False] * len(every), (
        name
    )


def told(facts: TableFacts, name: str, **options: object) -> Told:
    """Severity, where, evidence, statements, files and bytes at stake of a finding that also says
    all the rest.
    """
    finding = required(facts, name, **options)
    assert finding.table == "db.events"
    assert finding.threshold
    assert finding.source
    for sentence in (finding.effect, finding.remedy):
        assert sentence.endswith(".")
    return (
        finding.severity,
        finding.where,
        finding.evidence,
        finding.sql,
        finding.files_at_stake,
        finding.bytes_at_stake,
    )


def shows(golden: Golden, case: str, facts: TableFacts) -> None:
    """Compare a finding with its golden file; the first word of a case is its name."""
    golden.fields(f"diagnose/{case.replace(' ', '-')}.yaml", required(facts, case.split()[0]))
