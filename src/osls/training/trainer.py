"""The one training loop: a network, an optimiser, and a budget of steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from osls._core.arrays import AnyArray, Floats
from osls.training import ddp


@dataclass(frozen=True)
class Schedule:
    """How long and how fast to train. The budget is in optimiser steps, so small data is not starved.

    ``decay`` is one cycle of the learning rate over all steps. Without it the rate is constant, or multiplied
    by ``gamma`` every ``decay_every`` steps. ``batch_size`` is what one of ``processes`` draws for a step.
    """

    steps: int
    batch_size: int
    learning_rate: float = 2e-3
    weight_decay: float = 3e-2
    decay: bool = True
    optimizer: Literal["adamw", "adam", "sgd"] = "adamw"
    decay_every: int | None = None
    gamma: float = 0.1
    processes: int = 1

    @staticmethod
    def for_rows(n_rows: int, *, steps: int | None = None) -> Schedule:
        """About thirty epochs, never fewer than 1,000 steps; batches grow with the data."""
        batch = _batch_for(n_rows)
        return Schedule(steps=steps or max(1000, 30 * n_rows // batch), batch_size=batch).shared()

    @staticmethod
    def short(n_rows: int, *, steps: int | None = None) -> Schedule:
        """Twelve epochs at a high rate, never fewer than 300 steps: for plain cross-entropy on tables.

        On digits, letter, satimage, penbased, drybean and mnist its held-out log loss is that of thirty
        epochs at the lower rate or better, at a third of the cost. Objectives that alternate or oppose
        two losses keep the long schedule.
        """
        batch = _batch_for(n_rows)
        return Schedule(steps or max(300, 12 * n_rows // batch), batch, learning_rate=1e-2).shared()

    def longer(self, times: int) -> Schedule:
        """Return the same schedule stretched over more steps."""
        every = None if self.decay_every is None else times * self.decay_every
        return replace(self, steps=times * self.steps, decay_every=every)

    def shared(self) -> Schedule:
        """Return the schedule of one of the processes that train together: its part of every batch."""
        n = ddp.world_size()
        if n == self.processes:
            return self
        return replace(self, batch_size=max(1, self.batch_size // n), processes=n)

    def ends(self, length: int) -> list[int]:
        """Numbers of steps after which an epoch of ``length`` steps ends; the last epoch may be shorter."""
        return [*range(length, self.steps, length), self.steps]

    def epoch(self, n_rows: int) -> int:
        """Steps in which all processes together draw so many rows; at least one."""
        return max(1, n_rows // (self.batch_size * self.processes))


def _batch_for(n_rows: int) -> int:
    return int(np.clip(2 ** np.floor(np.log2(max(n_rows, 1) / 16)), 32, 256))


def schedule_for(factory: Any, n_rows: int, *, steps: int | None = None) -> Schedule:
    """Return the schedule that a network factory brings along, or the usual one for so many rows.

    A factory has its own if it has a method ``schedule(n_rows, steps) -> Schedule``.
    """
    own = getattr(factory, "schedule", None)
    return Schedule.for_rows(n_rows, steps=steps) if own is None else own(n_rows, steps).shared()


def resolve_device(device: str) -> torch.device:
    """Turn "auto" into the best device there is."""
    if device != "auto":
        return ddp.local_device(torch.device(device))
    if torch.cuda.is_available():
        return ddp.local_device(torch.device("cuda"))
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


@contextmanager
def seeded(seed: int) -> Iterator[torch.Generator]:
    """Seed initialisation and dropout inside the block and leave the caller's random state alone."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield torch.Generator().manual_seed(ddp.stream_seed(seed))


def as_tensor(X: AnyArray, device: torch.device) -> Tensor:
    """Put rows on the device once, as float32; images become (n, channels, height, width) in [0, 1]."""
    if X.ndim == 4 and X.shape[3] in (1, 3, 4) and X.shape[1] not in (1, 3, 4):
        X = np.moveaxis(X, 3, 1)
    tensor = torch.from_numpy(np.ascontiguousarray(X, dtype=np.float32)).to(device)
    return tensor.contiguous(memory_format=torch.channels_last) if X.ndim == 4 else tensor


class Trainer:
    """Run optimiser steps on a network; callers say what one step's loss is."""

    def __init__(self, network: nn.Module, schedule: Schedule):
        self.network = network
        self.schedule = schedule
        self.steps_done = 0
        # Under torchrun: torch's own wrapper, which gives all processes the first one's weights and averages
        # their gradients.
        self._parallel = ddp.SharedStep(network) if ddp.world_size() > 1 else None
        if self._parallel:
            # Masks of dropout, other than weights, are to differ between processes.
            torch.manual_seed(torch.initial_seed() + 1 + ddp.rank())
        self._optimizer = _optimizer(network, schedule)
        self._scheduler = _scheduler(self._optimizer, schedule)

    def epochs(self, loss_of_next_batch: Callable[[], Tensor], ends: Iterable[int]) -> Iterator[float]:
        """Train up to each of these numbers of steps, and yield the mean loss of the steps up to it.

        This is the loop that every training here is made of; :meth:`Schedule.ends` has the usual ends.
        """
        for end in ends:
            yield self.run(loss_of_next_batch, end - self.steps_done)

    def run(self, loss_of_next_batch: Callable[[], Tensor], steps: int) -> float:
        """Take ``steps`` optimiser steps and return their mean loss."""
        together = self._parallel
        if together is None:
            return self._run(loss_of_next_batch, steps)
        with ddp.synced_batch_norm(self.network):
            mean = self._run(lambda: together(loss_of_next_batch), steps)
        ddp.average_buffers(self.network)
        return ddp.average(mean)

    def _run(self, loss_of_next_batch: Callable[[], Tensor], steps: int) -> float:
        self.network.train()
        total: Tensor | float = 0.0
        for _ in range(steps):
            loss = loss_of_next_batch()
            self._optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            self._optimizer.step()
            if self._scheduler is not None:
                self._scheduler.step()
            # Summed on the device: reading the number each step would wait for it.
            total = total + loss.detach()
        self.steps_done += steps
        return float(total) / max(steps, 1)


def _optimizer(network: nn.Module, schedule: Schedule) -> torch.optim.Optimizer:
    shared: dict[str, Any] = {
        "lr": schedule.learning_rate,
        "weight_decay": schedule.weight_decay,
        "fused": True,
    }
    if schedule.optimizer == "sgd":
        return torch.optim.SGD(network.parameters(), momentum=0.9, **shared)
    kind = torch.optim.Adam if schedule.optimizer == "adam" else torch.optim.AdamW
    return kind(network.parameters(), **shared)


def _scheduler(
    optimizer: torch.optim.Optimizer, schedule: Schedule
) -> torch.optim.lr_scheduler.LRScheduler | None:
    if schedule.decay:
        return torch.optim.lr_scheduler.OneCycleLR(
            optimizer, schedule.learning_rate, total_steps=schedule.steps
        )
    if schedule.decay_every is not None:
        return torch.optim.lr_scheduler.StepLR(optimizer, schedule.decay_every, schedule.gamma)
    return None


def scoring_chunk(device: torch.device) -> int:
    """Rows to score at a time: on a CPU so few that what a layer returns stays in the cache."""
    return 512 if device.type == "cpu" else 4096


def score_rows(network: Callable[[Tensor], Tensor], rows: Tensor) -> Floats:
    """Outputs of a network in evaluation mode, in chunks."""
    size = scoring_chunk(rows.device)
    with torch.inference_mode():
        first = network(rows[:size])
        # Every chunk's answer has its place. Kept as tensors until the end, they would lie between blocks of
        # memory that each chunk frees, and none of those could be used again as a whole.
        out = torch.empty(len(rows), *first.shape[1:], dtype=first.dtype)
        out[:size] = first
        for start in range(size, len(rows), size):
            out[start : start + size] = network(rows[start : start + size])
    return np.asarray(out.numpy())
