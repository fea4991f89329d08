"""Uncertainty of the estimates: intervals, a test for novelty, and diagnostics."""

from osls.inference.cause import Cause
from osls.inference.diagnostics import Check, Diagnostics, TrustWarning, Verdict, diagnose
from osls.inference.novelty import NoveltyTest, novelty_test

__all__ = [
    "Cause",
    "Check",
    "Diagnostics",
    "NoveltyTest",
    "TrustWarning",
    "Verdict",
    "diagnose",
    "novelty_test",
]
