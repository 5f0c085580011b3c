"""What a finding says in figures, for tests that hold it to them."""

from icekit import diagnose
from icekit.health.diagnose.findings import Finding
from icekit.health.facts.model import TableFacts

#: For each finding, facts that it is made of and facts that it is not made of.
Borders = dict[str, tuple[list[TableFacts], list[TableFacts]]]


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
    for number, facts in enumerate(every):
        assert named(facts, name, **options), f"{name} of case {number}"


def absent(name: str, *every: TableFacts, **options: object) -> None:
    """See that the finding is made of none of these facts."""
    for number, facts in enumerate(every):
        assert not named(facts, name, **options), f"{name} of case {number}"
