"""Label shift among the known classes: estimates of their shares in the target."""

from osls.shift.base import LabelShiftEstimator
from osls.shift.bbse import BBSE
from osls.shift.calibration import Calibrator, fit_calibrator
from osls.shift.mlls import MLLS
from osls.shift.rlls import RLLS

__all__ = ["BBSE", "MLLS", "RLLS", "Calibrator", "LabelShiftEstimator", "fit_calibrator"]
