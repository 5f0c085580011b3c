"""The options of commands, as text: a variable without a value must not select more than was
meant.
"""

import pytest

from icekit.common.commands.run import MaintainSection
from icekit.common.commands.schedule import SECTIONS
from icekit.common.errors import ParameterError
from icekit.maintain.planning.maintenance import DEFAULT_PROCEDURES
from icekit.maintain.run.options import read_options


@pytest.mark.parametrize(
    ("command", "name"), [("convert", "where"), ("convert", "batch_bytes"), ("compact", "prove")]
)
def test_an_empty_text_is_refused_and_is_not_the_default(command: str, name: str) -> None:
    with pytest.raises(ParameterError):
        read_options(SECTIONS[command].of({name: ""}))  # type: ignore[arg-type]


def test_without_names_maintenance_has_its_default_procedures() -> None:
    assert [
        read_options(MaintainSection.of(given)).settings["procedures"]
        for given in ({}, {"procedures": ""})
    ] == [DEFAULT_PROCEDURES] * 2
