"""Estimates from summaries of scores; the scores never have to be in memory all at once.

Summaries are counts on nested grids (:mod:`osls.streaming.counts`), not a randomised sketch. The REQ sketch
of Apache DataSketches, accurate in the top ranks, was compared with them (``benchmarks/streaming.py``) and
gives BBE about the same accuracy at about the same size. But its compaction is random, so the same scores
give another answer each time (by .0005 on ten million); it takes no weights, which re-weighted sources need;
it keeps 32-bit numbers, of which the largest below 1 is 1 - 6e-8; and it is one more compiled dependency.
"""

from osls.streaming.class_mix import MixEstimate, estimate_mix
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
