"""Data sets by name, and the simulator that turns any of them into an open set label shift problem.

Loaders search the folder that the environment variable ``OSLS_DATA`` names, then earlier downloads. They
download only on request: ``DATASETS["cifar100"].load(download=True)``. Downloads, decoded images and
features of encoders are stored in the folder that ``OSLS_CACHE`` names, by default ``~/.cache/osls``.
"""

from osls.datasets.loading import Labelled
from osls.datasets.registry import DATASETS, Dataset, load_dataset
from osls.datasets.simulate import OSLSProblem, change_looks, simulate_osls

__all__ = [
    "DATASETS",
    "Dataset",
    "Labelled",
    "OSLSProblem",
    "change_looks",
    "load_dataset",
    "simulate_osls",
]
