"""Training models on torch: learners, their schedule, pre-training, and what torchrun changes."""

from osls.training.ddp import is_main
from osls.training.trainer import Schedule

__all__ = ["Schedule", "is_main"]
