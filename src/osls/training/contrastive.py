r"""Contrastive pre-training (SimCLR): features from images without labels, of source and target together.

Two random views of an image should be closer to each other than to the views of any other image. For a batch
of n images the loss is the mean over the 2n views z of

.. math:: -\log \frac{\exp(z \cdot z^+ / \tau)}{\sum_{z' \ne z} \exp(z \cdot z' / \tau)},

where :math:`z^+` is the other view of the same image and all z have length one.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize

from osls._core.arrays import AnyArray
from osls.training.nets.augment import RandomView
from osls.training.predictors import Encoder
from osls.training.sampling import EpochSampler
from osls.training.trainer import Schedule, Trainer, as_tensor, resolve_device, seeded

_PROJECTED = 128


def nt_xent(first: Tensor, second: Tensor, temperature: float = 0.5) -> Tensor:
    """The loss of SimCLR for two views of each row.

    Examples
    --------
    Two images whose views agree with each other and oppose those of the other image:

    >>> import torch
    >>> from osls.training.contrastive import nt_xent
    >>> z = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    >>> round(float(nt_xent(z, z, temperature=1.0)), 4)  # log(1 + 2 exp(-2))
    0.2395
    """
    z = normalize(torch.cat([first, second]), dim=1)
    similarity = (z @ z.T / temperature).fill_diagonal_(-torch.inf)
    partner = torch.arange(len(z), device=z.device).roll(len(first))
    return cross_entropy(similarity, partner)


def pretrain(
    body: nn.Module,
    X: AnyArray,
    *,
    epochs: float = 100,
    batch_size: int = 256,
    learning_rate: float = 2e-3,
    temperature: float = 0.5,
    device: str = "auto",
    seed: int = 0,
    on_epoch: Callable[[int, float], None] = lambda epoch, loss: None,
) -> nn.Module:
    """Train a body on images without labels and return it.

    Parameters
    ----------
    body : Module
        Maps images to ``out_features`` numbers; trained in place. Its own augmentation is applied as well.
    X : array of shape (n, channels, height, width) or (n, height, width, channels)
        Source and target images.
    epochs, batch_size, learning_rate
        Parameters of AdamW with the one-cycle learning rate schedule.
    temperature : float, default=0.5
        Temperature of the loss.
    device : str, default="auto"
        Where to train: "cpu", "cuda", "mps", or "auto" for the best available.
    seed : int, default=0
        Seed of batches and views.
    on_epoch : callable, optional
        Called with the number of the epoch and its mean loss.

    Examples
    --------
    >>> import numpy as np
    >>> from osls.training.nets.resnet import ResNet9Features
    >>> from osls.training.contrastive import pretrain
    >>> images = np.random.default_rng(0).random((64, 3, 16, 16))
    >>> body = pretrain(ResNet9Features(3, width=4), images, epochs=1, batch_size=32)
    """
    if X.ndim != 4:
        raise ValueError(f"X must hold images, an array of four dimensions; got the shape {X.shape}.")
    place = resolve_device(device)
    rows = as_tensor(Encoder(X)(X), place)
    size = min(batch_size, len(rows))
    epoch = max(1, len(rows) // size)
    with seeded(seed) as generator:
        width = int(body.out_features)  # type: ignore[arg-type]
        head = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, _PROJECTED))
        network = nn.Sequential(RandomView(), body, head).to(place)
        steps = max(2, round(epochs * epoch))
        schedule = Schedule(steps, size, learning_rate, weight_decay=1e-4)
        trainer = Trainer(network, schedule)
        sampler = EpochSampler(np.ones(len(rows)), generator)

        def loss_of_next_batch() -> Tensor:
            batch = rows[sampler.next(size).to(rows.device)]
            # Both views in one forward pass, so that they share the statistics of batch normalisation.
            first, second = network(torch.cat([batch, batch])).chunk(2)
            return nt_xent(first, second, temperature)

        for number, loss in enumerate(trainer.epochs(loss_of_next_batch, schedule.ends(epoch)), 1):
            on_epoch(number, loss)
    return body
