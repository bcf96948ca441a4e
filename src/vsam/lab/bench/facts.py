"""Where a benchmark was run: hardware, versions and commit."""

from typing import Any

import torch

from vsam.lab.bench.peers import peers_version
from vsam.lab.runs.environment import describe_environment

__all__ = ["Facts", "gather", "in_words"]

Facts = dict[str, Any]


def gather() -> Facts:
    """Versions, hardware and commit; everything is timed on one thread."""
    return {**describe_environment(torch.device("cpu")), "threads": 1, "pytorch_optimizer": peers_version()}


def in_words(facts: Facts) -> str:
    """The same as a sentence."""
    peers = f", pytorch_optimizer {facts['pytorch_optimizer']}" if facts["pytorch_optimizer"] else ""
    return (
        f"{facts['device']}, {facts['cores']} cores, one thread; vsam {facts['vsam']} at {facts['commit']}, "
        f"torch {facts['torch']}, Python {facts['python']}{peers}."
    )
