"""Define an action: one call of a procedure, with its prediction and its SQL."""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import field
from types import MappingProxyType

from icekit.common import frozen, sql
from icekit.common.command_line import command_line
from icekit.health.facts.retention import ExpirySummary, Retention
from icekit.iceberg.partition import Partition
from icekit.maintain.prediction import Prediction
from icekit.rows.rewrite.rewrite_order import RewriteOrder

#: The option of a rewrite after which icekit drops the delete files that apply to no data file
# (:mod:`icekit.rows.deletes.dangling`). No action's statement has it: Iceberg's own action does not
# ask a scan, and drops deletes that readers before 1.12 apply by the path of their data file. Only
# a finding prints it, for a partition spec whose column was dropped: there all data files are
# rewritten, so no delete applies any more.
DANGLING = "remove-dangling-deletes"

#: With these limits no data file has the wrong size, and a file is taken only if all its rows are
# deleted.
REWRITE_NOTHING: Mapping[str, str] = MappingProxyType(
    {"min-file-size-bytes": "0", "max-file-size-bytes": str(2**62), "delete-ratio-threshold": "1.0"}
)

#: No procedure does this; see :mod:`icekit.rows.deletes`.
CONVERT = "convert_equality_deletes"


@frozen
class Action:
    """One call of a procedure, the unit of retry, record and proof.

    ``partitions`` are those that the action takes (empty: the complete table, or not by partition),
    ``why`` gives the reason. ``order``, ``where``, ``unless`` (a filter for rows whose files
    ``where`` leaves out) and ``must_save`` (without a saved file open it is not worth running) are
    for rewrites of data files; ``older_than`` is for removals by age, fixed at planning so that a
    resumed run removes nothing more. ``misread_keys`` are the keys of equality deletes that
    Iceberg's own rewrite would apply wrongly. ``retention`` and ``expiry`` are for expiries: what
    stays for writers and staged writes, and what the plan computed.
    """

    action_id: str
    procedure: str
    catalog: str
    table: tuple[str, ...]
    why: str
    prediction: Prediction
    partitions: tuple[Partition, ...] = ()
    partition_names: tuple[str, ...] = ()
    where: str | None = None
    unless: str | None = None
    must_save: bool = False
    order: RewriteOrder = RewriteOrder()
    options: Mapping[str, str] = field(default_factory=dict)
    arguments: Mapping[str, str | int | bool | tuple[str | int, ...]] = field(default_factory=dict)
    branch: str | None = None
    older_than: dt.datetime | None = None
    misread_keys: tuple[str, ...] = ()
    retention: Retention | None = None
    expiry: ExpirySummary | None = None

    @property
    def sql_name(self) -> tuple[str, ...]:
        """The table's name, with its catalog."""
        return (self.catalog, *self.table)

    @property
    def rewrites_position_deletes(self) -> bool:
        """Whether the action rewrites position delete files."""
        return self.procedure == "rewrite_position_delete_files"

    def integer_argument(self, argument_name: str, default: int) -> int:
        """An argument of the procedure as an integer."""
        return int(str(self.arguments.get(argument_name, default)))

    @property
    def only_drops_deletes(self) -> bool:
        """Whether the action rewrites no data file, and only drops delete files that apply to
        none.
        """
        return (
            self.options.get(DANGLING) == "true" and REWRITE_NOTHING.items() <= self.options.items()
        )

    @property
    def sql(self) -> str:
        """The statement that a person could paste, or the command if no statement does the same."""
        table_name = sql.display_name(self.table)
        if self.only_drops_deletes or self.misread_keys or self.procedure == CONVERT:
            is_conversion = self.procedure == CONVERT
            command = "convert" if is_conversion else "compact"
            branch_options: list[str] = []
            if self.branch:
                branch_options = ["--branch" if is_conversion else "--ref", self.branch]
            return command_line(command, self.catalog, table_name, *branch_options, "--execute")
        if self.expiry is not None and not self.expiry.is_stock:
            # Iceberg's own procedure would remove what writers and staged writes need.
            command_options = (
                *(self.retention.command_options if self.retention else ()),
                *("--procedures", self.procedure, "--execute"),
            )
            return command_line("maintain", self.catalog, table_name, *command_options)
        call_arguments: dict[str, sql.Argument] = {"table": table_name}
        if self.order.is_sorting:
            call_arguments["strategy"] = "sort"
            if self.order.sql:
                call_arguments["sort_order"] = self.order.sql
        if self.where is not None:
            call_arguments["where"] = self.where
        if self.branch:
            call_arguments["branch"] = self.branch
        if self.older_than:
            call_arguments["older_than"] = self.older_than
        call_arguments |= self.arguments
        rewrite_options = {
            option: option_value
            for option, option_value in self.options.items()
            if option != DANGLING
        }
        return sql.call_sql(self.catalog, self.procedure, options=rewrite_options, **call_arguments)

    @property
    def title(self) -> str:
        """The procedure and its target, for a progress line."""
        partitions_text = names_and_others(self.partition_names[:1], len(self.partitions))
        return f"{self.procedure} {partitions_text}" if self.partition_names else self.procedure


def names_and_others(names: Sequence[str], total_count: int) -> str:
    """The names, and how many of the total are not among them."""
    others_text = f" and {total_count - len(names):,} more" if total_count > len(names) else ""
    return f"{', '.join(names)}{others_text}"
