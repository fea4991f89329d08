"""A full default fit beside the bare training steps that it performs.

The fit is run once while a recorder notes what it trains: the stacks of networks (shape, batch, steps) and
the scikit-learn models (rows, labels, weights). The bare cost is those trainings again and nothing else:
plain forward, backward and optimiser steps on batches drawn beforehand, and plain calls of ``fit``.

Usage: OSLS_DATA=<folder> python benchmarks/fit_overhead.py [data set]
"""

from __future__ import annotations

import copy
import sys
import time
from typing import Any

import torch
from sklearn.base import clone
from torch.nn.functional import cross_entropy

from osls import PULSE
from osls.app.bench.draws import draw_problem
from osls.training import learners
from osls.training.learners import NetworkLearner
from osls.training.trainer import Trainer


class Recorder:
    """Notes every network and scikit-learn model that is trained inside the block."""

    def __init__(self) -> None:
        self.networks: list[tuple[Any, ...]] = []
        self.models: list[tuple[Any, Any, Any, Any]] = []

    def __enter__(self) -> Recorder:
        recorder = self
        self._new, self._fit = NetworkLearner.new_networks, learners._fit_rows

        def new_networks(learner: NetworkLearner, members: int, n_outputs: int) -> Any:
            networks = recorder._new(learner, members, n_outputs)
            recorder.networks.append(
                (copy.deepcopy(networks), learner.schedule, learner.rows, members, n_outputs)
            )
            return networks

        def fit(X: Any, y: Any, weight: Any, rows: Any, estimator: Any, seed: int) -> Any:
            model = recorder._fit(X, y, weight, rows, estimator, seed)
            recorder.models.append((clone(model), X[rows], y[rows], weight[rows] / weight[rows].mean()))
            return model

        NetworkLearner.new_networks, learners._fit_rows = new_networks, fit
        return self

    def __exit__(self, *_: object) -> None:
        NetworkLearner.new_networks, learners._fit_rows = self._new, self._fit


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


def bare_models(recorder: Recorder) -> float:
    started = time.perf_counter()
    for model, X, y, weight in recorder.models:
        model.fit(X, y, sample_weight=weight)
    return time.perf_counter() - started


def compare(config: dict[str, Any]) -> tuple[float, float]:
    """Seconds of a default fit, and of the bare trainings in it."""
    problem = draw_problem(config, draw=0)
    PULSE(max_steps=5, rounds=1, random_state=0).fit(**problem.training_data())  # warm up
    started = time.perf_counter()
    PULSE(random_state=0).fit(**problem.training_data())
    whole = time.perf_counter() - started
    # A second fit is recorded, so that copying what it trains does not count against the first.
    with Recorder() as recorder:
        PULSE(random_state=0).fit(**problem.training_data())
    return whole, bare_networks(recorder) + bare_models(recorder)


def main(data: str = "mnist") -> None:
    whole, bare = compare({"name": data})
    print(f"{data}: whole fit {whole:.1f} s, bare training {bare:.1f} s, ratio {whole / bare:.2f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
