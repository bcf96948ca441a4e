"""Transformers' Trainer with vSAM: accumulation, clipping and logging are the Trainer's own.

Needs `pip install 'vsam[transformers]'`. The model is tiny and the sentences are random numbers, so it runs in seconds.
"""

import tempfile

import torch
from transformers import BertConfig, BertForSequenceClassification, TrainingArguments

import vsam
from vsam.integrations.transformers import SharpnessAwareTrainer


def make_dataset(length: int = 256) -> list[dict[str, torch.Tensor]]:
    """Sentences of eight words. The label says whether the first word is one of the first ten."""
    words = torch.randint(20, (length, 8), generator=torch.Generator().manual_seed(0))
    return [{"input_ids": sentence, "labels": (sentence[0] < 10).long()} for sentence in words]


def main() -> tuple[list[float], vsam.VSAM]:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    model = BertForSequenceClassification(BertConfig(vocab_size=20, **sizes))

    base = torch.optim.AdamW(model.parameters(), lr=3e-3)
    optimizer = vsam.VSAM(base, model=model, budget=0.2)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            num_train_epochs=6,
            per_device_train_batch_size=16,
            gradient_accumulation_steps=2,
            max_grad_norm=1.0,
            logging_steps=8,
            save_strategy="no",
            disable_tqdm=True,
            use_cpu=True,
        )
        trainer = SharpnessAwareTrainer(model, arguments, train_dataset=make_dataset(), optimizers=(optimizer, None))
        trainer.train()

    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}")
    print(f"{optimizer.num_samples} second gradients in {trainer.state.global_step} steps")
    return losses, optimizer


if __name__ == "__main__":
    main()
