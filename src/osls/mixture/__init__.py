"""Mixture proportion estimation: how much of the unlabelled sample is positive."""

from osls.mixture.base import MixtureEstimator
from osls.mixture.bbe import BBE, BestBins, BinCurve, bbe_by_class

__all__ = ["BBE", "BestBins", "BinCurve", "MixtureEstimator", "bbe_by_class"]
