"""Data-parallel training under torchrun: one process per core or GPU, each with its part of every batch.

No function has to be called. Start a script that fits a model as ``torchrun --nproc_per_node N script.py``;
the first training joins the processes (gloo on CPUs, nccl on GPUs), and from then on

- every process starts from the weights of the first and draws 1/N of each batch with its own random stream;
- gradients are averaged before each step, by torch's own DistributedDataParallel, so the weights stay the
  same everywhere;
- batch normalisation uses the whole batch. Otherwise each process would normalise by its own part of a
  batch, which is another model: noisier, and more so with more processes. torch's SyncBatchNorm works on
  GPUs only, so this part is implemented here (:func:`synced_batch_norm`).

Everything else (trees, calibration, estimates) is computed by every process from the same seed, so all of
them get the same numbers. ``random_state`` must be an integer; different seeds are an error. Let only the
first process write files: ``if osls.training.is_main(): ...``.
"""

from __future__ import annotations

import atexit
import gc
import multiprocessing
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from inspect import signature
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor, distributed, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel

_SET_BY_TORCHRUN = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_GOLDEN = 0x9E3779B97F4A7C15


def world_size() -> int:
    """Number of processes that train together; 1 unless torchrun (or the caller) started several."""
    if not distributed.is_available():
        return 1
    if not distributed.is_initialized():
        if not _launched_by_torchrun():
            return 1
        _join()
    return distributed.get_world_size()


def rank() -> int:
    """Index of this process, from 0."""
    return distributed.get_rank() if world_size() > 1 else 0


def is_main() -> bool:
    """Whether this process is the one that writes files and prints.

    Examples
    --------
    >>> from osls.training import is_main
    >>> is_main()  # alone
    True
    """
    return rank() == 0


def _launched_by_torchrun() -> bool:
    if not all(name in os.environ for name in _SET_BY_TORCHRUN):
        return False
    # Worker processes inherit the environment variables but do not belong to the group.
    return int(os.environ["WORLD_SIZE"]) > 1 and multiprocessing.parent_process() is None


def _join() -> None:
    cuda = torch.cuda.is_available() and distributed.is_nccl_available()
    if cuda:
        torch.cuda.set_device(_local_rank())
    distributed.init_process_group("cpu:gloo,cuda:nccl" if cuda else "gloo")
    atexit.register(_leave)


def _leave() -> None:
    """Leave the group, after all that refers to it.

    What outlives the group is torn down with the interpreter, while threads of torch still use it: one in
    seven of short runs ended with SIGABRT.
    """
    if distributed.is_initialized():
        for step in list(_steps):
            step.release()
        gc.collect()
        distributed.destroy_process_group()


def _local_rank() -> int:
    return int(os.environ.get("LOCAL_RANK", "0"))


def local_device(device: torch.device) -> torch.device:
    """Return this process's own GPU for "cuda" without a number, if several processes train together."""
    if device.type == "cuda" and device.index is None and world_size() > 1:
        return torch.device("cuda", _local_rank())
    return device


def stream_seed(seed: int) -> int:
    """Seed of this process's stream of rows; the first process uses the seed unchanged."""
    if world_size() == 1:
        return seed
    ends = torch.tensor([seed, -seed], device=_message_device())
    distributed.all_reduce(ends, distributed.ReduceOp.MAX)
    if int(ends[0]) != -int(ends[1]):
        raise RuntimeError(
            "the processes of this torchrun were given different seeds: "
            "pass the same integer as random_state= in each of them."
        )
    return (seed + rank() * _GOLDEN) % 2**63


def _own_buffers() -> dict[str, Any]:
    """Arguments of torch's wrapper that leave buffers alone; torch 2.13 warns of the name it had before."""
    known = signature(DistributedDataParallel).parameters
    return {"forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers": False}


class SharedStep:
    """A step of training that all processes take together, by torch's DistributedDataParallel.

    That wrapper only handles the ``forward`` of the module that it wraps. Losses here call different parts of
    a network, so a module is wrapped whose ``forward`` is the whole loss.
    """

    def __init__(self, network: nn.Module):
        # Heads that a training phase does not use have no gradient; buffers are averaged between epochs.
        self._wrapped: nn.Module | None = DistributedDataParallel(
            _LossOf(network), find_unused_parameters=True, **_own_buffers()
        )
        _steps.add(self)

    def __call__(self, loss_of_next_batch: Callable[[], Tensor]) -> Tensor:
        assert self._wrapped is not None, "the processes have parted"
        loss: Tensor = self._wrapped(loss_of_next_batch)
        return loss

    def release(self) -> None:
        """Let go of torch's wrapper, and with it of the group of processes."""
        self._wrapped = None


# Those that are still in use; they have to be released before the processes part.
_steps: WeakSet[SharedStep] = WeakSet()


class _LossOf(nn.Module):
    def __init__(self, network: nn.Module):
        super().__init__()
        self.network = network

    def forward(self, loss_of_next_batch: Callable[[], Tensor]) -> Tensor:
        return loss_of_next_batch()


def average_buffers(network: nn.Module) -> None:
    """Replace the buffers of a network by their means over the processes."""
    _average_in_place(b for b in network.buffers() if b.is_floating_point())


def average(value: float) -> float:
    """Mean of a number over the processes."""
    mean = torch.tensor(value, dtype=torch.float64, device=_message_device())
    distributed.all_reduce(mean)
    return float(mean) / distributed.get_world_size()


def _message_device() -> str:
    return "cuda" if distributed.get_backend() == "nccl" else "cpu"


def _average_in_place(tensors: Iterable[Tensor]) -> None:
    by_type: dict[torch.dtype, list[Tensor]] = defaultdict(list)
    for tensor in tensors:
        by_type[tensor.dtype].append(tensor)
    for group in by_type.values():
        # One message for all tensors: on small networks the latency of a message is the main cost.
        flat = torch.cat([tensor.reshape(-1) for tensor in group])
        distributed.all_reduce(flat)
        flat /= distributed.get_world_size()
        parts = torch.split(flat, [tensor.numel() for tensor in group])
        for tensor, part in zip(group, parts, strict=True):
            tensor.copy_(part.view(tensor.shape))


@contextmanager
def synced_batch_norm(network: nn.Module) -> Iterator[None]:
    """Inside the block, the network's layers of batch normalisation share their statistics."""
    layers = [layer for layer in network.modules() if isinstance(layer, _BatchNorm)]
    for layer in layers:
        layer.forward = partial(_forward, layer)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for layer in layers:
            # Removes the instance attribute, so that the class's method is used and pickling works.
            del layer.forward


class _Sum(torch.autograd.Function):
    """Sum over the processes, in the forward and in the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        total = x.clone()
        distributed.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, *gradient: Tensor) -> Tensor:
        total = gradient[0].clone()
        distributed.all_reduce(total)
        return total


def _forward(layer: _BatchNorm, x: Tensor) -> Tensor:
    if not layer.training:
        return type(layer).forward(layer, x)
    axes = [axis for axis in range(x.dim()) if axis != 1]
    shape = [1, -1] + [1] * (x.dim() - 2)
    size = x.new_tensor([x.numel() / x.shape[1]])
    # Centred at the running mean, equal in all processes: squares of large numbers would lose precision.
    origin = torch.zeros_like(x[:1].mean(axes)) if layer.running_mean is None else layer.running_mean
    shifted = x - origin.reshape(shape)
    sums: Tensor = _Sum.apply(torch.cat([shifted.sum(axes), shifted.square().sum(axes), size]))  # type: ignore[no-untyped-call]
    count = sums[-1].detach()
    mean, square = (sums[:-1] / count).chunk(2)
    variance = (square - mean.square()).clamp_min(0.0)
    if layer.running_mean is not None and layer.running_var is not None:
        _remember(layer, (mean + origin).detach(), (variance * count / (count - 1).clamp_min(1)).detach())
    normed = (shifted - mean.reshape(shape)) * torch.rsqrt(variance + layer.eps).reshape(shape)
    if layer.affine:
        normed = normed * layer.weight.reshape(shape) + layer.bias.reshape(shape)
    return normed


def _remember(layer: _BatchNorm, mean: Tensor, variance: Tensor) -> None:
    """Update the running statistics, as the layer itself would."""
    assert layer.running_mean is not None
    assert layer.running_var is not None
    assert layer.num_batches_tracked is not None
    layer.num_batches_tracked.add_(1)
    rate = 1 / float(layer.num_batches_tracked) if layer.momentum is None else layer.momentum
    layer.running_mean.lerp_(mean, rate)
    layer.running_var.lerp_(variance, rate)
