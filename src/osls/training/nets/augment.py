"""Random changes of images that do not change their class, as layers that only act in training."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import affine_grid, grid_sample, pad


class RandomShiftFlip(nn.Module):
    """Shift each image by a few pixels and mirror every second one, as is usual for CIFAR.

    Parameters
    ----------
    pixels : int, default=4
        The largest shift in each direction; the image is padded by reflection at the edges.
    flip : bool, default=True
        Whether to mirror. Not for digits or text.

    Examples
    --------
    >>> import torch
    >>> from osls.training.nets.augment import RandomShiftFlip
    >>> images = torch.arange(16.0).reshape(1, 1, 4, 4)
    >>> layer = RandomShiftFlip(1)
    >>> bool((layer.eval()(images) == images).all())
    True
    >>> layer.train()(images).shape
    torch.Size([1, 1, 4, 4])
    """

    def __init__(self, pixels: int = 4, *, flip: bool = True):
        super().__init__()
        self.pixels = pixels
        self.flip = flip

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        n, _, height, width = x.shape
        shift = torch.randint(0, 2 * self.pixels + 1, (2, n, 1), device=x.device)
        rows = torch.arange(height, device=x.device) + shift[0]
        columns = torch.arange(width, device=x.device).expand(n, width)
        if self.flip:
            mirrored = torch.rand(n, 1, device=x.device) < 0.5
            columns = torch.where(mirrored, columns.flip(1), columns)
        columns = columns + shift[1]
        padded = pad(x, (self.pixels,) * 4, mode="reflect")
        # The indexing puts the channels last in memory, which is the fast format for convolutions.
        images = torch.arange(n, device=x.device)[:, None, None]
        return padded[images, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


class RandomView(nn.Module):
    """A view of each image for contrastive learning (SimCLR): cropped, mirrored, its colours changed.

    Parameters
    ----------
    smallest : float, default=0.2
        The smallest share of the area that a crop keeps.
    colour : float, default=0.5
        How much brightness, contrast and saturation may change.
    gray : float, default=0.2
        Probability that an image is made grey.
    """

    def __init__(self, smallest: float = 0.2, colour: float = 0.5, gray: float = 0.2):
        super().__init__()
        self.smallest = smallest
        self.colour = colour
        self.gray = gray

    def forward(self, x: Tensor) -> Tensor:
        return self._change_colours(self._crop(x))

    def _crop(self, x: Tensor) -> Tensor:
        n = len(x)
        side = torch.empty(n, device=x.device).uniform_(self.smallest, 1).sqrt()
        sign = torch.where(torch.rand(n, device=x.device) < 0.5, -1.0, 1.0)
        centre = (1 - side) * (2 * torch.rand(2, n, device=x.device) - 1)
        theta = torch.zeros(n, 2, 3, device=x.device)
        theta[:, 0, 0], theta[:, 0, 2] = side * sign, centre[0]
        theta[:, 1, 1], theta[:, 1, 2] = side, centre[1]
        grid = affine_grid(theta, list(x.shape), align_corners=False)
        return grid_sample(x, grid, padding_mode="reflection", align_corners=False)

    def _change_colours(self, x: Tensor) -> Tensor:
        def factor() -> Tensor:
            low, high = 1 - self.colour, 1 + self.colour
            return torch.empty(len(x), 1, 1, 1, device=x.device).uniform_(low, high)

        # Pixels are standardised: contrast is a factor, brightness is added.
        x = x * factor() + (factor() - 1)
        plain = x.mean(dim=1, keepdim=True)
        keep = torch.where(torch.rand(len(x), 1, 1, 1, device=x.device) < self.gray, 0.0, factor())
        return plain + keep * (x - plain)
