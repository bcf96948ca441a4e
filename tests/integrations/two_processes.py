"""Run the Trainer and a loop of accelerate's on two processes, with two micro-batches per step.

Started by `torchrun`, or alone for comparison; each process saves what it saw in the folder that it is given.
"""

import gc
import math
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator, FullyShardedDataParallelPlugin
from accelerate.utils import DistributedType
from torch import Tensor
from torch.utils.data import DataLoader

import vsam
from integrations.tiny import make_dataset, make_method, make_model, reset_accelerate, train, weights
from vsam.integrations.accelerate import Accelerator as SharpnessAwareAccelerator
from vsam.integrations.accelerate import step
from vsam.integrations.transformers import SharpnessAwareTrainer

RANK, WORLD_SIZE = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
BATCH = 8 // WORLD_SIZE
METHOD = {"method": vsam.VSAM, "rho": 0.5, "start": 2, "window": 3, "slices": 1, "initial_samples": 1}


class NotingTrainer(SharpnessAwareTrainer):
    """Notes at which passes gradients are synchronised."""

    synchronised: list[tuple[bool, bool]]

    def compute_loss(self, model: Any, *args: Any, **kwargs: Any) -> Any:
        self.synchronised.append((self.is_second_pass, getattr(model, "require_backward_grad_sync", True)))
        return super().compute_loss(model, *args, **kwargs)


def shard(accelerator: Accelerator) -> None:
    """Accelerate shards weights on GPUs only, and what it then calls works on the CPU too."""
    wrap = {"auto_wrap_policy": "transformer_based_wrap", "transformer_cls_names_to_wrap": ["BertLayer"]}
    plugin = FullyShardedDataParallelPlugin(fsdp_version=2, cpu_ram_efficient_loading=False, **wrap)
    vars(accelerator.state).update(distributed_type=DistributedType.FSDP, fsdp_plugin=plugin)


class ShardedTrainer(SharpnessAwareTrainer):
    """Trains with FSDP2."""

    def create_accelerator_and_postprocess(self) -> None:
        super().create_accelerator_and_postprocess()
        shard(self.accelerator)
        self.is_fsdp_enabled = True


def sharded(folder: Path) -> dict[str, Any]:
    """The same as `trainer` and `loop` with FSDP2, and what is said of the Trainer's checkpoints."""
    changes = {"per_device_train_batch_size": BATCH, "num_train_epochs": 3, "average_tokens_across_devices": False}
    settings = {name: value for name, value in METHOD.items() if name != "method"}
    settings["base"] = (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9})
    start = partial(train, optimizer=None, kind=ShardedTrainer)
    start = partial(start, options={"optimizer_cls_and_kwargs": (vsam.VSAM, settings)})
    run = start(folder / "sharded", make_model(dropout=0.0).double(), **changes)
    said = ""
    try:
        start(folder / "saving", make_model(), save_strategy="epoch")
    except ValueError as error:
        said = str(error)
    return {"trainer": whole(run.model), "loop": loop(is_sharded=True)["weights"], "said": said}


def whole(model: Any) -> list[Tensor]:
    return [parameter.full_tensor() if hasattr(parameter, "full_tensor") else parameter for parameter in weights(model)]


def trainer(folder: Path) -> dict[str, Any]:
    changes = {"per_device_train_batch_size": BATCH, "save_strategy": "steps", "save_steps": 3, "num_train_epochs": 3}
    changes["average_tokens_across_devices"] = False  # which would double the loss of BERT, a mean already
    runs = []
    for resume in (None, str(folder / "trainer" / "checkpoint-3")):
        model = make_model(dropout=0.0).double()
        optimizer = make_method(model, **METHOD)
        NotingTrainer.synchronised = []
        run = train(folder / "trainer", model, optimizer, NotingTrainer, resume, **changes)
        runs.append({"weights": weights(model), "num_samples": optimizer.num_samples})
        runs[-1] |= {"synchronised": NotingTrainer.synchronised, "tokens": run.state.num_input_tokens_seen}
    return {"whole": runs[0], "resumed": runs[1]}


def apart(folder: Path) -> dict[str, Any]:
    """Each process perturbs along its own gradient."""
    model = make_model(dropout=0.0).double()
    NotingTrainer.synchronised = []
    options = {"optimizer_cls_and_kwargs": (vsam.SAM, {"rho": 0.5, "sync": "rank", "every": 2})}
    train(folder / "apart", model, None, NotingTrainer, options=options, per_device_train_batch_size=BATCH)
    return {"weights": weights(model), "synchronised": NotingTrainer.synchronised}


def disagreement(folder: Path) -> list[str]:
    """Return the messages that processes with different seeds get."""
    said = []
    for run in (
        lambda: train(folder / "seeds", (model := make_model()), make_method(model, **METHOD, seed=RANK)),
        lambda: loop(seed=RANK),
    ):
        try:
            run()
        except RuntimeError as error:
            said.append(str(error))
    return said


def loop(is_sharded: bool = False, **settings: Any) -> dict[str, Any]:
    reset_accelerate()
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    if is_sharded:
        shard(accelerator)
    model = make_model(dropout=0.0).double()
    method = make_method(model, max_grad_norm=0.5, **METHOD, **settings)
    model, optimizer, loader = accelerator.prepare(model, method, DataLoader(make_dataset(64), batch_size=BATCH))
    synchronised, losses = [], []

    def closure(batch: dict[str, Tensor]) -> Tensor:
        loss: Tensor = model(**batch).loss
        synchronised.append((method.is_second_pass, getattr(model, "require_backward_grad_sync", True)))
        accelerator.backward(loss)
        return loss

    batches = iter(loader)
    for micro_batches in zip(batches, batches, strict=True):
        loss = step(accelerator, optimizer, [partial(closure, batch) for batch in micro_batches])
        losses.append(accelerator.reduce(loss, "mean").item())
    seen = {"weights": whole(model), "num_samples": method.num_samples, "losses": losses}
    return seen | {"synchronised": synchronised}


def unrepeated() -> dict[str, Any]:
    """Return what is said of second passes that do not repeat both micro-batches, and the steps of three epochs."""
    said = []
    for repeated in ([0, 1], [1], [1, 1]):
        reset_accelerate()
        accelerator = SharpnessAwareAccelerator(cpu=True, gradient_accumulation_steps=2)
        model = make_model(dropout=0.0)
        optimizer: Any = make_method(model, last=1.0, rho=0.5)
        loader: Any = DataLoader(make_dataset(40), batch_size=BATCH)
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        total_steps = 3 * math.ceil(len(loader) / accelerator.gradient_accumulation_steps)
        optimizer.set_total_steps(total_steps)
        micro_batches: list[Any] = []
        num_steps = 0
        try:
            for batch in loader:
                with accelerator.accumulate(model):
                    micro_batches.append(batch)
                    (model(**batch).loss / 2).backward()
                    if optimizer.perturb():
                        for i in repeated if len(micro_batches) == 2 else [0]:
                            (model(**micro_batches[i]).loss / 2).backward()
                    optimizer.step()
                    optimizer.zero_grad()
                if accelerator.sync_gradients:
                    micro_batches, num_steps = [], num_steps + 1
            said.append(f"{num_steps} of {total_steps}")
        except RuntimeError as error:
            said.append(str(error))
    return {"said": said}


def main() -> None:
    folder = Path(sys.argv[1])
    torch.set_num_threads(1)
    seen = {"trainer": trainer(folder), "loop": loop(), "unrepeated": unrepeated()}
    if WORLD_SIZE > 1:
        seen |= {"apart": apart(folder), "disagreement": disagreement(folder), "sharded": sharded(folder)}
    torch.save(seen, folder / f"seen-{RANK}.pt")
    if torch.distributed.is_initialized():
        gc.collect()  # without these two lines gloo may hang or abort when Python ends
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
