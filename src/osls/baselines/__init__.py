"""The methods PULSE is compared with, under the same contract."""

from osls.baselines.source_only import SourceOnly

__all__ = ["SourceOnly"]
