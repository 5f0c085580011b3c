"""The options of ``schedule``, and the sections of a policy."""

from collections.abc import Mapping

from icekit.common.commands.observe import ReportSection
from icekit.common.commands.run import CompactSection, ConvertSection, MaintainSection
from icekit.common.options import Settings, one_of, setting


class PolicyFileOptions(Settings):
    """``icekit schedule check``."""

    file: str = setting("", "the policy file", "POLICY", nargs="1")


class PassOptions(PolicyFileOptions):
    """``icekit schedule run``."""

    dry_run: bool = setting(False, "print what the pass would do to each table; writes nothing")


class RecipeOptions(Settings):
    """``icekit schedule recipe``."""

    kind: str = setting(
        "",
        "cron, systemd, airflow",
        "KIND",
        nargs="1",
        read=one_of("kind", "cron", "systemd", "airflow"),
    )
    file: str = setting("policy.yaml", "the policy file", "POLICY", nargs="?")
    output: str = setting("", "write the files there instead of printing them", "FOLDER")


#: The sections of a rule of a policy, in the order in which a pass runs the commands.
SECTIONS: Mapping[str, type[Settings]] = {
    "report": ReportSection,
    "convert": ConvertSection,
    "compact": CompactSection,
    "maintain": MaintainSection,
}
