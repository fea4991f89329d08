"""Mixture proportion estimation: how much of the unlabelled sample is positive.

All estimators work on scores, one number an example, and read a million of them in a fraction of a second.
TIcE and KM2 are left out on purpose: they work on raw features, KM2 with a quadratic programme over a dense
(n + m) x (n + m) kernel matrix, TIcE with a tree over every feature, and neither has an advantage once a
classifier has turned the features into a score: what TIcE looks for there, the purest bin, is what BBE
finds exactly.
"""

from osls.mixture.base import MixtureEstimator
from osls.mixture.bbe import BBE, BestBins, BinCurve, bbe_by_class
from osls.mixture.dedpul import DEDPUL
from osls.mixture.elkan_noto import ElkanNoto
from osls.mixture.regroup import Regroup
from osls.mixture.subsample import Subsample

__all__ = [
    "BBE",
    "DEDPUL",
    "BestBins",
    "BinCurve",
    "ElkanNoto",
    "MixtureEstimator",
    "Regroup",
    "Subsample",
    "bbe_by_class",
]
