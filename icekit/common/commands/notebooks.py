"""The options of each notebook."""

from collections.abc import Mapping

from icekit.common.commands.observe import DiagnoseOptions, StartOptions
from icekit.common.commands.run import CompactOptions, ConvertOptions, MaintainOptions
from icekit.common.commands.tune import (
    FileSizesOptions,
    LayoutOptions,
    MetricsColumnsOptions,
    PlanningOptions,
    ReviewMergeOptions,
    WriteModeOptions,
)
from icekit.common.options import Settings

#: What each notebook is set with, by its own parameters and by what its line ``more`` names.
NOTEBOOKS: Mapping[str, type[Settings]] = {
    "00_start_here": StartOptions,
    "01_diagnose": DiagnoseOptions,
    "02_compact": CompactOptions,
    "03_maintain": MaintainOptions,
    "04_equality_deletes": ConvertOptions,
    "05_choose_write_mode": WriteModeOptions,
    "06_review_merge": ReviewMergeOptions,
    "07_tune_file_sizes": FileSizesOptions,
    "08_tune_metrics_columns": MetricsColumnsOptions,
    "09_tune_layout": LayoutOptions,
    "10_tune_planning": PlanningOptions,
}
