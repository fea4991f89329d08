"""Data sets by name, and the simulator that turns any of them into an open set label shift problem."""

from osls.datasets.simulate import OSLSProblem, simulate_osls

__all__ = ["OSLSProblem", "simulate_osls"]
