"""Data sets by name, and the simulator that turns any of them into an open set label shift problem."""

from osls.datasets.registry import DATASETS, Dataset, load_dataset
from osls.datasets.simulate import OSLSProblem, simulate_osls

__all__ = ["DATASETS", "Dataset", "OSLSProblem", "load_dataset", "simulate_osls"]
