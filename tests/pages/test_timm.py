"""Both sides of timm's page train, with stand-ins for timm."""

import runpy
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from pages.read import ROOT, blocks, sides
from pages.test_snippets import on_this_machine, surroundings

EXAMPLE = runpy.run_path(str(ROOT / "examples" / "timm_loop.py"), run_name="example")


class Scheduler(EXAMPLE["Scheduler"]):
    def step(self, epoch: int) -> None:
        self.epoch = epoch


def timm_like(num_updates: int) -> SimpleNamespace:
    def create_optimizer(model: nn.Module, opt: str, lr: float, weight_decay: float) -> torch.optim.Optimizer:
        assert opt == "adamw"
        return torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=weight_decay)

    def clip(parameters: Any, value: float) -> None:
        nn.utils.clip_grad_norm_(parameters, value)

    return SimpleNamespace(
        create_model=lambda name, num_classes: surroundings()["model"],
        optim=SimpleNamespace(create_optimizer_v2=create_optimizer),
        scheduler=SimpleNamespace(
            create_scheduler_v2=lambda optimizer, sched, num_epochs: (Scheduler(optimizer, num_updates), num_epochs)
        ),
        utils=SimpleNamespace(ModelEmaV3=lambda model, decay: EXAMPLE["ModelEma"](model), dispatch_clip_grad=clip),
    )


def test_both_sides_train() -> None:
    (diff,) = blocks("docs/loops/timm.md", "diff")
    for script in sides(on_this_machine(diff.text)):
        names = surroundings()
        del names["optimizer"], names["base"]
        num_updates = 2 * len(names["loader"])
        names |= {"timm": timm_like(num_updates), "mixup": lambda inputs, targets: (inputs, targets)}
        exec(script, names)
        assert names["num_updates"] == num_updates == names["model"][1].num_batches_tracked
        assert names["scheduler"].epoch == 2
        assert names["optimizer"].param_groups[0]["lr"] == 0
        assert not torch.equal(names["model"][0].weight, surroundings()["model"][0].weight)
        assert not torch.equal(names["model_ema"].module[0].weight, names["model"][0].weight)
    assert names["optimizer"].num_samples == num_updates // 5


def test_the_example_learns_and_samples_a_fifth_of_the_steps() -> None:
    losses, optimizer = EXAMPLE["main"]()
    assert sum(losses[-20:]) < 0.7 * sum(losses[:20])
    assert optimizer.num_samples == len(losses) // 5 == 40
    assert optimizer.model[1].num_batches_tracked == len(losses)
