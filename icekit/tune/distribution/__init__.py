"""Distribution mode: the mode in force and why, the files each mode makes, and where small files came from."""

from icekit.tune.distribution.cadence import Cadence, Until, cadence, until_sick
from icekit.tune.distribution.cohorts import Cohort, Cohorts, cohorts
from icekit.tune.distribution.modes import HASH, MODES, NONE, RANGE, Mode, modes
from icekit.tune.distribution.predict import Predicted, Spread, predict
from icekit.tune.distribution.trial import ModeTrial, Tried

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
