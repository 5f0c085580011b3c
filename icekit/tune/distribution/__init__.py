"""Distribution mode: the mode in force and why, the files each mode makes, and where small files came from."""

from icekit.tune.distribution.advise import ModeTrial, TriedMode
from icekit.tune.distribution.modes import (
    HASH,
    MODES,
    NONE,
    RANGE,
    Cadence,
    Cohort,
    Cohorts,
    CommitSpread,
    Mode,
    Predicted,
    Until,
    cadence,
    cohorts,
    modes,
    predict,
    until_sick,
)

__all__ = [
    "HASH",
    "MODES",
    "NONE",
    "RANGE",
    "Cadence",
    "Cohort",
    "Cohorts",
    "CommitSpread",
    "Mode",
    "ModeTrial",
    "Predicted",
    "TriedMode",
    "Until",
    "cadence",
    "cohorts",
    "modes",
    "predict",
    "until_sick",
]
