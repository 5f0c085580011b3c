"""Distribution mode: the mode in force and why, the files each mode makes, and where small files came from."""

from icekit.tune.distribution.advise import ModeTrial, Tried
from icekit.tune.distribution.modes import (
    HASH,
    MODES,
    NONE,
    RANGE,
    Cadence,
    Cohort,
    Cohorts,
    Mode,
    Predicted,
    Spread,
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
    "Mode",
    "ModeTrial",
    "Predicted",
    "Spread",
    "Tried",
    "Until",
    "cadence",
    "cohorts",
    "modes",
    "predict",
    "until_sick",
]
