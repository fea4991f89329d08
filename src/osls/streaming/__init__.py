"""Estimates from summaries of scores that never have to be in memory at once."""

from osls.streaming.mix import MixEstimate, estimate_mix
from osls.streaming.probabilities import ProbabilitySummary
from osls.streaming.share import Share, estimate_share
from osls.streaming.summary import ScoreSummary, merge_all

__all__ = [
    "MixEstimate",
    "ProbabilitySummary",
    "ScoreSummary",
    "Share",
    "estimate_mix",
    "estimate_share",
    "merge_all",
]
