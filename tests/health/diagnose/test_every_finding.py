"""Every finding begins at its limits and looks like its golden file, which is reviewed as a
document.
"""

import pytest

from icekit import Severity
from icekit.health.diagnose import SYMPTOMS
from icekit.health.facts.model import TableFacts
from tests.golden import FOLDER, Golden
from tests.health.diagnose import (
    test_columns,
    test_deletes,
    test_files,
    test_integrity,
    test_layers,
    test_writes,
)
from tests.health.diagnose.told import absent, present, required

BORDERS = {
    **test_columns.BORDERS,
    **test_deletes.BORDERS,
    **test_files.BORDERS,
    **test_integrity.BORDERS,
    **test_layers.BORDERS,
    **test_writes.BORDERS,
}
#: Facts by the case that they show; the first word of a case is the name of the finding.
SHOWN = {
    **test_columns.SHOWN,
    **test_deletes.SHOWN,
    **test_files.SHOWN,
    **test_integrity.SHOWN,
    **test_layers.SHOWN,
    **test_writes.SHOWN,
}


@pytest.mark.parametrize("name", BORDERS)
def test_a_finding_begins_at_its_limits(name: str) -> None:
    made_of, not_made_of = BORDERS[name]

    present(name, *made_of)
    absent(name, *not_made_of)


@pytest.mark.parametrize(
    ("name", "facts", "severity"), [*test_deletes.SEVERITIES, *test_files.SEVERITIES]
)
def test_a_finding_is_more_serious_from_its_second_limit_on(
    name: str, facts: TableFacts, severity: Severity
) -> None:
    assert required(facts, name).severity is severity


@pytest.mark.parametrize("case", SHOWN)
def test_a_finding_looks_like_its_golden_file_and_says_all_that_it_must(
    case: str, golden: Golden
) -> None:
    finding = required(SHOWN[case], case.split()[0])

    golden.fields(f"diagnose/{case.replace(' ', '-')}.yaml", finding)
    # A list has a few words for it.
    assert 0 < len(finding.figure) <= 40
    assert finding.threshold
    assert finding.source
    assert finding.effect.endswith(".")
    assert finding.remedy.endswith(".")


def test_every_finding_has_a_golden_file_and_every_file_a_finding() -> None:
    files = {path.stem for path in FOLDER.glob("diagnose/*.yaml")}

    assert files == {case.replace(" ", "-") for case in SHOWN}
    assert {case.split()[0] for case in SHOWN} == SYMPTOMS.keys()
