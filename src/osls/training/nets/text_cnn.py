"""The paper's network for text: word vectors, three convolutions, the strongest response of each filter."""

from __future__ import annotations

import torch
from torch import Tensor, nn

_FILTERS, _KERNEL, _POOL = 128, 5, 5


class TextCNNFeatures(nn.Module):
    """Rows of word numbers (0 is padding) to 128 features.

    Parameters
    ----------
    vectors : Tensor of shape (words, dimensions)
        One vector a word, such as GloVe's. They are held, as in the network that the paper names.

    Examples
    --------
    >>> import torch
    >>> from osls.training.nets.text_cnn import TextCNNFeatures
    >>> body = TextCNNFeatures(torch.randn(50, 8))
    >>> tuple(body(torch.randint(50, (2, 200)).float()).shape)
    (2, 128)
    """

    def __init__(self, vectors: Tensor):
        super().__init__()
        # Part of the state, so that a saved network is whole, but not trained.
        self.vectors = nn.Parameter(vectors.float(), requires_grad=False)
        self.body = nn.Sequential(
            nn.Conv1d(vectors.shape[1], _FILTERS, _KERNEL),
            nn.ReLU(),
            nn.MaxPool1d(_POOL),
            nn.Conv1d(_FILTERS, _FILTERS, _KERNEL),
            nn.ReLU(),
            nn.MaxPool1d(_POOL),
            nn.Conv1d(_FILTERS, _FILTERS, _KERNEL),
            nn.ReLU(),
            nn.AdaptiveMaxPool1d(1),
            nn.Flatten(),
            nn.Linear(_FILTERS, _FILTERS),
            nn.ReLU(),
        )
        self.out_features = _FILTERS

    def forward(self, words: Tensor) -> Tensor:
        # Rows arrive as float32, which holds whole numbers up to 16 million exactly.
        out: Tensor = self.body(self.vectors[words.to(torch.int64)].transpose(1, 2))
        return out
