"""Telling positives from negatives when only positives are labelled."""

from osls.pu.classifier import PUClassifier
from osls.pu.losses import cvir_with_penalty, nnpu, pvu, upu
from osls.pu.selection import pu_auc, unbiased_risk

# The loss `cvir` is not exported: osls.pu.cvir is the module with the algorithm.
__all__ = ["PUClassifier", "cvir_with_penalty", "nnpu", "pu_auc", "pvu", "unbiased_risk", "upu"]
