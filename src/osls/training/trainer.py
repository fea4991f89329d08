"""The training loop that all networks use: a network, an optimiser, and a number of steps."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from osls._core.arrays import AnyArray, Floats
from osls.training import ddp

_ONE_TRAINING = threading.RLock()


@dataclass(frozen=True)
class Schedule:
    """How long to train and at which rate. The budget is in steps, so that small data is trained enough.

    With ``epochs`` the steps are counted when the rows to train on are known (:meth:`over`), and so are those
    between two decays with ``decay_epochs``.

    ``decay`` is one cycle of the learning rate over all steps. Without it the rate is constant, or multiplied
    by ``gamma`` every ``decay_every`` steps. ``batch_size`` is the number of rows per step and process. With
    ``patience`` training ends early, see :class:`Plateau`.
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
    patience: int | None = None
    epochs: float | None = None
    decay_epochs: float | None = None

    @staticmethod
    def for_rows(n_rows: int, *, steps: int | None = None) -> Schedule:
        """About thirty epochs, never fewer than 1,000 steps; batches grow with the data."""
        batch = _batch_for(n_rows)
        return Schedule(steps=steps or max(1000, 30 * n_rows // batch), batch_size=batch).shared()

    @staticmethod
    def short(n_rows: int, *, steps: int | None = None, epochs: int = 8) -> Schedule:
        """A few epochs of small batches at a high rate: for plain cross-entropy on tables.

        Eight epochs of 128 rows, and never fewer than 400 steps (300 of the smaller batches of small data),
        reach the held-out log loss of twelve epochs of 256 rows at half the rate, at half the cost (letter,
        avila, covtype, usps, penbased). More rows need fewer epochs: their number falls with the square root
        of the rows from 6,400 on, down to three. Alternating and adversarial objectives train longer.
        """
        batch = min(128, _batch_for(n_rows))
        least = 400 if batch == 128 else 300
        passes = float(np.clip(epochs * np.sqrt(6400 / max(n_rows, 1)), 3, epochs))
        rate = 2e-2 if batch == 128 else 1e-2
        return Schedule(steps or max(least, int(passes * n_rows / batch)), batch, learning_rate=rate).shared()

    def continued(self) -> Schedule:
        """Return the schedule of a network that goes on from trained weights: a third of the steps."""
        return replace(self, steps=max(1, self.steps // 3), learning_rate=self.learning_rate / 2)

    def brief(self) -> Schedule:
        """Return the schedule of networks whose scores only steady those of others: half of the steps."""
        return replace(self, steps=max(1, self.steps // 2))

    def over(self, n_rows: int) -> Schedule:
        """Return the schedule for training on ``n_rows`` rows; only what it counts in epochs depends on them.

        Examples
        --------
        >>> from osls.training.trainer import Schedule
        >>> schedule = Schedule(1, batch_size=200, epochs=10, decay_epochs=4).over(1000)
        >>> schedule.steps, schedule.decay_every
        (50, 20)
        """
        epoch = self.epoch(n_rows)
        steps = self.steps if self.epochs is None else max(1, round(self.epochs * epoch))
        every = self.decay_every if self.decay_epochs is None else max(1, round(self.decay_epochs * epoch))
        return replace(self, steps=steps, decay_every=every)

    def shared(self) -> Schedule:
        """Return the schedule of one of several processes: each draws its part of every batch."""
        n = ddp.world_size()
        if n == self.processes:
            return self
        return replace(self, batch_size=max(1, self.batch_size // n), processes=n)

    def ends(self, length: int) -> list[int]:
        """Step numbers at which epochs of ``length`` steps end; the last epoch may be shorter."""
        return [*range(length, self.steps, length), self.steps]

    def epoch(self, n_rows: int) -> int:
        """Number of steps in which all processes together draw ``n_rows`` rows; at least one."""
        return max(1, n_rows // (self.batch_size * self.processes))


def _batch_for(n_rows: int) -> int:
    return int(np.clip(2 ** np.floor(np.log2(max(n_rows, 1) / 16)), 32, 256))


def schedule_for(
    factory: Any, n_rows: int, *, steps: int | None = None, patience: int | None = None
) -> Schedule:
    """Return a network factory's own schedule, or the usual one for ``n_rows`` rows.

    A factory has its own schedule if it has a method ``schedule(n_rows, steps) -> Schedule``.
    """
    own = getattr(factory, "schedule", None)
    schedule = Schedule.for_rows(n_rows, steps=steps) if own is None else own(n_rows, steps).shared()
    return replace(schedule, patience=patience)


class Plateau:
    """The paper's rule to stop: the accuracy on held-out source rows has ceased to increase.

    Without ``patience`` it never has. The rule suits a constant or a stepwise rate; under the one-cycle rate
    the accuracy rises most at the end.

    Examples
    --------
    >>> from osls.training.trainer import Plateau
    >>> ceased = Plateau(patience=2)
    >>> [ceased(accuracy) for accuracy in (0.5, 0.7, 0.7, 0.6)]
    [False, False, False, True]
    """

    def __init__(self, patience: int | None):
        self.patience = patience
        self._best, self._since = -np.inf, 0

    def __bool__(self) -> bool:
        """Whether there is anything to watch."""
        return self.patience is not None

    def __call__(self, accuracy: float) -> bool:
        """Note the accuracy after an epoch; True if it has not increased in ``patience`` epochs."""
        self._since = 0 if accuracy > self._best else self._since + 1
        self._best = max(self._best, accuracy)
        return self.patience is not None and self._since >= self.patience


def resolve_device(device: str) -> torch.device:
    """Turn "auto" into the best available device."""
    if device != "auto":
        return ddp.local_device(torch.device(device))
    if torch.cuda.is_available():
        return ddp.local_device(torch.device("cuda"))
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


@dataclass(frozen=True)
class Device:
    """A constraint of a parameter: what torch computes on, and this machine has."""

    def complaint(self, value: Any) -> str | None:
        if isinstance(value, str) and value == "auto":
            return None
        try:
            kind = torch.device(value).type
        except (RuntimeError, TypeError):
            return f"must be 'auto', 'cpu', 'cuda' or 'mps'; got {value!r}."
        here = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
        if not here.get(kind, True):
            return f"is {value!r}, which this machine does not have; use 'auto' or 'cpu'."
        return None


@contextmanager
def undisturbed() -> Iterator[None]:
    """Restore torch's random state after the block; only one thread at a time may be inside."""
    with _ONE_TRAINING, torch.random.fork_rng():
        yield


@contextmanager
def seeded(seed: int) -> Iterator[torch.Generator]:
    """Seed initialisation and dropout inside the block, without changing the caller's random state.

    torch draws both from one generator of the whole process, so only one thread trains at a time: fits in
    several threads give what they would give one after the other.
    """
    with undisturbed():
        torch.manual_seed(seed)
        yield torch.Generator().manual_seed(ddp.stream_seed(seed))


def as_tensor(X: AnyArray, device: torch.device) -> Tensor:
    """Put rows on the device once, as float32; images become (n, channels, height, width) in [0, 1]."""
    if X.ndim == 4 and X.shape[3] in (1, 3, 4) and X.shape[1] not in (1, 3, 4):
        X = np.moveaxis(X, 3, 1)
    tensor = torch.from_numpy(np.ascontiguousarray(X, dtype=np.float32)).to(device)
    return tensor.contiguous(memory_format=torch.channels_last) if X.ndim == 4 else tensor


class Trainer:
    """Run optimiser steps on a network; the caller provides the loss of each step."""

    def __init__(self, network: nn.Module, schedule: Schedule):
        self.network = network
        self.schedule = schedule
        self.steps_done = 0
        # Under torchrun: torch's own wrapper, which copies the first process's weights to all processes and
        # averages their gradients.
        self._parallel = ddp.SharedStep(network) if ddp.world_size() > 1 else None
        if self._parallel:
            # The weights are equal in all processes, but the dropout masks must differ.
            torch.manual_seed(torch.initial_seed() + 1 + ddp.rank())
        self._optimizer = _optimizer(network, schedule)
        self._scheduler = _scheduler(self._optimizer, schedule)

    def epochs(self, loss_of_next_batch: Callable[[], Tensor], ends: Iterable[int]) -> Iterator[float]:
        """Train up to each of these step numbers, and yield the mean loss of the steps since the last.

        All training uses this loop; :meth:`Schedule.ends` gives the usual ends.
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
            # Summed on the device: reading the loss in each step would wait for the device.
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
    """Rows to score at a time: on a CPU so few that the output of a layer fits in the cache."""
    return 512 if device.type == "cpu" else 4096


def score_rows(network: Callable[[Tensor], Tensor], rows: Tensor) -> Floats:
    """Outputs of a network in evaluation mode, in chunks."""
    size = scoring_chunk(rows.device)
    with torch.inference_mode():
        first = network(rows[:size])
        # The output is allocated once. Keeping the chunks' outputs in a list would fragment the memory: they
        # would lie between the blocks that each chunk frees.
        out = torch.empty(len(rows), *first.shape[1:], dtype=first.dtype)
        out[:size] = first
        for start in range(size, len(rows), size):
            out[start : start + size] = network(rows[start : start + size])
    return np.asarray(out.numpy())
