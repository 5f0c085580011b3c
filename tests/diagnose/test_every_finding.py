"""Every finding begins at its limits and looks like its golden file, which is reviewed as a
document.
"""

import pytest

from icekit.diagnose import SYMPTOMS
from tests.diagnose import (
    test_columns,
    test_content,
    test_deletes,
    test_files,
    test_integrity,
    test_layers,
    test_unreadable,
    test_writes,
)
from tests.diagnose.told import absent, present, required
from tests.golden import FOLDER, Golden

#: For each finding, facts that it is made of and facts that it is not made of.
BORDERS = {
    **test_columns.BORDERS,
    **test_content.BORDERS,
    **test_files.BORDERS,
    **test_layers.BORDERS,
    **test_writes.BORDERS,
}
#: Facts by the case that they show; the first word of a case is the name of the finding.
SHOWN = {
    **test_columns.SHOWN,
    **test_content.SHOWN,
    **test_deletes.SHOWN,
    **test_files.SHOWN,
    **test_integrity.SHOWN,
    **test_layers.SHOWN,
    **test_unreadable.SHOWN,
    **test_writes.SHOWN,
}


@pytest.mark.parametrize("name", BORDERS)
def test_a_finding_begins_at_its_limits(name: str) -> None:
    made_of, not_made_of = BORDERS[name]

    present(name, *made_of)
    absent(name, *not_made_of)


@pytest.mark.parametrize("case", SHOWN)
def test_a_finding_looks_like_its_golden_file_and_says_all_that_it_must(
    case: str, golden: Golden
) -> None:
    finding = required(SHOWN[case], case.split()[0])

    golden.fields(f"diagnose/{case.replace(' ', '-')}.yaml", finding)
    assert finding.threshold
    assert finding.source
    assert finding.effect.endswith(".")
    assert finding.remedy.endswith(".")


def test_every_finding_has_a_golden_file_and_every_file_a_finding() -> None:
    files = {path.stem for path in FOLDER.glob("diagnose/*.yaml")}

    assert files == {case.replace(" ", "-") for case in SHOWN}
    assert {case.split()[0] for case in SHOWN} == SYMPTOMS.keys()
