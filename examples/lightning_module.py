"""Lightning: with one more base class, accumulation, clipping, logs and metrics are correct with both passes."""

import warnings

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.classification import BinaryAccuracy

import vsam
from vsam.integrations.lightning import SharpnessAwareModule


class Net(SharpnessAwareModule, LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Linear(10, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 1), nn.Flatten(0))
        self.accuracy = BinaryAccuracy()

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        logits = self.network(batch[0])
        self.accuracy(logits, batch[1])
        loss = nn.functional.binary_cross_entropy_with_logits(logits, batch[1])
        self.log("loss", loss, on_step=False, on_epoch=True)
        self.log("accuracy", self.accuracy, on_step=False, on_epoch=True)
        return loss

    def configure_optimizers(self) -> dict:
        base = torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)
        optimizer = vsam.VSAM(base, model=self, budget=0.2)
        return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=10)}


def main() -> tuple[Net, Trainer]:
    warnings.filterwarnings("ignore", ".*does not have many workers.*")
    torch.manual_seed(0)
    points = torch.randn(1_000, 10)
    loader = DataLoader(TensorDataset(points, (points[:, 0] * points[:, 1] > 0).float()), batch_size=50, shuffle=True)
    silent = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    trainer = Trainer(max_epochs=10, accelerator="cpu", accumulate_grad_batches=2, gradient_clip_val=1.0, **silent)
    net = Net()
    trainer.fit(net, loader)
    logged = ", ".join(f"{name} {value:.3f}" for name, value in trainer.callback_metrics.items())
    print(f"{logged}; {trainer.optimizers[0].num_samples} second gradients in {trainer.global_step} steps")
    return net, trainer


if __name__ == "__main__":
    main()
