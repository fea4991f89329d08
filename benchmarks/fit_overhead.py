"""A full default fit beside the bare training steps that it performs.

The fit is run once while a recorder notes what it trains: the stacks of networks (shape, batch, steps) and
the forests (rows, labels, weights). The bare cost is those trainings again and nothing else: plain forward,
backward and optimiser steps on batches drawn beforehand, and plain calls of the forests' ``fit``.

Usage: OSLS_DATA=<folder> python benchmarks/fit_overhead.py [data set]
"""

from __future__ import annotations

import copy
import sys
import time
from typing import Any

import torch
from sklearn.ensemble import ExtraTreesClassifier
from torch.nn.functional import cross_entropy

from osls import PULSE
from osls.bench.problems import draw_problem
from osls.training.core import Schedule, Trainer
from osls.training.learners import NetworkLearner


class Recorder:
    """Notes every network and forest that is trained inside the block, and how long that took."""

    def __init__(self) -> None:
        self.networks: list[tuple[Any, Schedule, torch.Tensor]] = []
        self.forests: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = []

    def __enter__(self) -> Recorder:
        recorder = self
        self._new, self._fit = NetworkLearner.new_networks, ExtraTreesClassifier.fit

        def new_networks(learner: NetworkLearner, members: int, n_outputs: int) -> Any:
            networks = recorder._new(learner, members, n_outputs)
            recorder.networks.append(
                (copy.deepcopy(networks), learner.schedule, learner.rows, members, n_outputs)
            )
            return networks

        def fit(forest: Any, *arguments: Any, **options: Any) -> Any:
            recorder.forests.append((copy.deepcopy(forest), arguments, options))
            return recorder._fit(forest, *arguments, **options)

        NetworkLearner.new_networks, ExtraTreesClassifier.fit = new_networks, fit
        return self

    def __exit__(self, *_: object) -> None:
        NetworkLearner.new_networks, ExtraTreesClassifier.fit = self._new, self._fit


def bare_networks(recorder: Recorder) -> float:
    """Plain torch steps: gather, forward, loss, backward, optimiser, learning rate."""
    total = 0.0
    for networks, schedule, rows, members, n_outputs in recorder.networks:
        shape = (schedule.steps, members, schedule.batch_size)
        batches = torch.randint(len(rows), shape)
        labels = torch.randint(n_outputs, shape)
        trainer = Trainer(networks, schedule)
        optimizer, scheduler = trainer._optimizer, trainer._scheduler
        networks.train()
        started = time.perf_counter()
        for batch, label in zip(batches, labels, strict=True):
            loss = cross_entropy(networks(rows[batch]).flatten(0, 1), label.flatten())
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            scheduler.step()
        total += time.perf_counter() - started
    return total


def bare_forests(recorder: Recorder) -> float:
    started = time.perf_counter()
    for forest, arguments, options in recorder.forests:
        forest.fit(*arguments, **options)
    return time.perf_counter() - started


def main(data: str = "mnist") -> None:
    problem = draw_problem({"name": data}, draw=0)
    PULSE(max_steps=5, rounds=1, random_state=0).fit(**problem.training_data())  # warm up
    with Recorder() as recorder:
        started = time.perf_counter()
        PULSE(random_state=0).fit(**problem.training_data())
        whole = time.perf_counter() - started
    networks, forests = bare_networks(recorder), bare_forests(recorder)
    print(f"{data}: {len(problem.y_source)} source and {len(problem.y_target)} target rows")
    print(f"networks {networks:.1f} s, forests {forests:.1f} s, whole fit {whole:.1f} s")
    print(f"whole fit / bare training = {whole / (networks + forests):.2f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
