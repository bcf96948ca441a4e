"""A transformer, its data and its training, small enough for tests that compare many of them."""

from pathlib import Path
from typing import Any

import torch
from accelerate.state import AcceleratorState, GradientState
from torch import nn
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed

import vsam
from vsam.integrations.transformers import SharpnessAwareTrainer

Dataset = list[dict[str, torch.Tensor]]


def reset_accelerate() -> None:
    """Forget the settings that accelerate keeps for the life of a process."""
    AcceleratorState._reset_state(True)
    GradientState._reset_state()


def make_model(dropout: float = 0.1) -> nn.Module:
    set_seed(0)
    sizes = {"vocab_size": 20, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    rates = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    return BertForSequenceClassification(BertConfig(intermediate_size=16, **sizes, **rates))


def make_dataset(length: int = 32) -> Dataset:
    words = torch.randint(20, (length, 6), generator=torch.Generator().manual_seed(0))
    return [{"input_ids": sentence, "labels": (sentence[0] < 10).long()} for sentence in words]


def make_method(model: nn.Module, method: Any = vsam.SAM, **settings: Any) -> vsam.SharpnessAware:
    return method(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), model=model, **settings)


def make_arguments(folder: Path, **changes: Any) -> TrainingArguments:
    settings = {
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 2,
        "num_train_epochs": 1,
        "max_grad_norm": 0.5,
        "logging_steps": 1,
        "save_strategy": "no",
        "train_sampling_strategy": "sequential",
        "include_num_input_tokens_seen": "all",
        "disable_tqdm": True,
        "use_cpu": True,
        **changes,
    }
    return TrainingArguments(str(folder), **settings)


def train(
    folder: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer | None,
    kind: type[Trainer] = SharpnessAwareTrainer,
    resume: str | None = None,
    options: dict[str, Any] | None = None,
    length: int = 32,
    **changes: Any,
) -> Trainer:
    """Train with the trainer's `options` and `changes` of the arguments."""
    reset_accelerate()
    optimizers = {} if optimizer is None else {"optimizers": (optimizer, None)}
    arguments = make_arguments(folder, **changes)
    trainer = kind(model, arguments, train_dataset=make_dataset(length), **optimizers, **(options or {}))
    trainer.train(resume_from_checkpoint=resume)
    return trainer


def weights(model: nn.Module) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in model.parameters()]


def logs(trainer: Trainer) -> list[dict[str, Any]]:
    """Return the logged values of the steps, without the times."""
    entries = [entry for entry in trainer.state.log_history if "loss" in entry]
    return [{name: value for name, value in entry.items() if not name.startswith("train_")} for entry in entries]


def are_equal(model: nn.Module, other: nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(weights(model), weights(other), strict=True))
