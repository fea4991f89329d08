"""The one training loop: a network, an optimiser, and a budget of steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from osls._typing import AnyArray, Floats

__all__ = ["Schedule", "Trainer", "as_tensor", "resolve_device", "score_rows", "seeded"]

_SCORING_CHUNK = 4096


@dataclass(frozen=True)
class Schedule:
    """How long and how fast to train. The budget is in optimiser steps, so small data is not starved."""

    steps: int
    batch_size: int
    learning_rate: float = 2e-3
    weight_decay: float = 3e-2
    decay: bool = True

    @staticmethod
    def for_rows(n_rows: int, *, steps: int | None = None) -> Schedule:
        """About thirty epochs, never fewer than 1,000 steps; batches grow with the data."""
        batch = int(np.clip(2 ** np.floor(np.log2(max(n_rows, 1) / 16)), 32, 256))
        return Schedule(steps=steps or max(1000, 30 * n_rows // batch), batch_size=batch)

    def longer(self, times: int) -> Schedule:
        """Return the same schedule stretched over more steps."""
        return replace(self, steps=times * self.steps)


def resolve_device(device: str) -> torch.device:
    """Turn "auto" into the best device there is."""
    if device != "auto":
        return torch.device(device)
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


@contextmanager
def seeded(seed: int) -> Iterator[torch.Generator]:
    """Seed initialisation and dropout inside the block and leave the caller's random state alone."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield torch.Generator().manual_seed(seed)


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
        self._optimizer = torch.optim.AdamW(
            network.parameters(), lr=schedule.learning_rate, weight_decay=schedule.weight_decay, fused=True
        )
        self._scheduler = (
            torch.optim.lr_scheduler.OneCycleLR(
                self._optimizer, schedule.learning_rate, total_steps=schedule.steps
            )
            if schedule.decay
            else None
        )

    def run(self, loss_of_next_batch: Callable[[], Tensor], steps: int) -> float:
        """Take ``steps`` optimiser steps and return their mean loss."""
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


def score_rows(network: Callable[[Tensor], Tensor], rows: Tensor, row_axis: int = 0) -> Floats:
    """Outputs of a network in evaluation mode, in chunks."""
    with torch.inference_mode():
        chunks = [network(chunk) for chunk in torch.split(rows, _SCORING_CHUNK)]
    return np.asarray(torch.cat(chunks, dim=row_axis).cpu().numpy())
