"""Mixture proportion estimation: the share of positives in an unlabelled sample.

All estimators work on scores, one number per example, and process a million of them in less than a second.
TIcE and KM2 are left out on purpose: they work on raw features, KM2 with a quadratic programme over a dense
(n + m) x (n + m) kernel matrix, TIcE with a tree over every feature. Neither has an advantage once a
classifier has turned the features into a score: TIcE then searches for the purest bin, which BBE finds
exactly.
"""

from osls.mixture.base import MixtureEstimator
from osls.mixture.bbe import BBE, BestBins, BinCurve, bbe_by_class
from osls.mixture.by_class import ClassShares, shares_by_class
from osls.mixture.dedpul import DEDPUL
from osls.mixture.elkan_noto import ElkanNoto
from osls.mixture.kernel_prior import KernelPrior
from osls.mixture.regroup import Regroup
from osls.mixture.subsample import Subsample

__all__ = [
    "BBE",
    "DEDPUL",
    "BestBins",
    "BinCurve",
    "ClassShares",
    "ElkanNoto",
    "KernelPrior",
    "MixtureEstimator",
    "Regroup",
    "Subsample",
    "bbe_by_class",
    "shares_by_class",
]
