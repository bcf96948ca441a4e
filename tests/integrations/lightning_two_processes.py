"""Each of two processes of `test_lightning_ddp.py` runs this: `python lightning_two_processes.py DIRECTORY`.

Lightning starts the second process itself. Each writes what it has at the end.
"""

import sys
import warnings
from pathlib import Path
from typing import Any, Literal

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.strategies import ModelParallelStrategy
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from torchmetrics import SumMetric

import vsam
from vsam.integrations.lightning import SharpnessAwareModule

warnings.filterwarnings("ignore")


class Net(SharpnessAwareModule, LightningModule):
    """Automatic or manual optimisation, without BatchNorm, so that the number of processes does not matter."""

    def __init__(self, is_automatic: bool, sync: Literal["global", "rank"]) -> None:
        super().__init__()
        self.sync = sync
        torch.manual_seed(0)
        self.network = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Tanh(), nn.Linear(8, 2))
        self.automatic_optimization = is_automatic
        self.count = SumMetric()
        self.synchronised: list[tuple[bool, bool]] = []

    def configure_model(self) -> None:
        if isinstance(self.trainer.strategy, ModelParallelStrategy):
            fully_shard(self.network, mesh=self.device_mesh["data_parallel"])  # type: ignore[index]

    def train_dataloader(self) -> Any:
        points = torch.randn(64, 4, generator=torch.Generator().manual_seed(1))
        data = TensorDataset(points, (points[:, 0] * points[:, 1] > 0).long())
        world_size = self.trainer.world_size
        sampler: Any = DistributedSampler(data, world_size, self.trainer.global_rank, shuffle=False)
        return DataLoader(data, batch_size=8 // world_size, sampler=sampler)

    def loss(self, batch: Any) -> Any:
        self.count.update(len(batch[0]))
        syncs = getattr(self.trainer.strategy.model, "require_backward_grad_sync", True)
        self.synchronised.append((self.is_second_pass, syncs))
        loss = nn.functional.cross_entropy(self.network(batch[0]), batch[1])
        self.log("loss", loss, on_step=False, on_epoch=True, sync_dist=True)
        return loss

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        if self.automatic_optimization:
            return self.loss(batch)

        def closure() -> Any:
            loss = self.loss(batch)
            self.manual_backward(loss)
            return loss

        return self.optimizers().step(closure)

    def configure_optimizers(self) -> Any:
        base = torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)
        model: Any = self if self.sync == "global" else self.trainer.strategy.model  # DDP's module
        return vsam.VSAM(base, model=model, rho=0.5, window=4, slices=2, start=2, sync=self.sync)


def train(name: str, devices: int) -> dict[str, Any]:
    is_automatic = name != "manual"
    options: dict[str, Any] = {"accumulate_grad_batches": 2, "gradient_clip_val": 0.5} if is_automatic else {}
    options["use_distributed_sampler"] = False  # Lightning's shuffles
    silent = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    strategy: Any = "ddp" if devices > 1 else "auto"
    if name == "sharded":
        strategy = ModelParallelStrategy(data_parallel_size=devices, tensor_parallel_size=1)
    trainer = Trainer(accelerator="cpu", devices=devices, strategy=strategy, max_epochs=1, **options, **silent)
    net = Net(is_automatic, "rank" if name == "rank" else "global")
    trainer.fit(net)
    return {
        "weights": [_whole(parameter) for parameter in net.network.parameters()],
        "num_samples": trainer.optimizers[0].num_samples,
        "num_seen": float(net.count.sum_value),
        "loss": float(trainer.callback_metrics["loss"]),
        "steps": trainer.global_step,
        "synchronised": net.synchronised,
    }


def _whole(parameter: Any) -> torch.Tensor:
    whole: torch.Tensor = parameter.full_tensor() if hasattr(parameter, "full_tensor") else parameter
    return whole.detach().clone()


if __name__ == "__main__":
    results = {name: train(name, 2) for name in ("automatic", "manual", "rank", "sharded")}
    torch.save(results, Path(sys.argv[1], f"{torch.distributed.get_rank()}.pt"))
    torch.distributed.barrier()  # or gloo's threads may still hold tensors when Python ends, which aborts
