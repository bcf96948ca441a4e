"""Fine-tune a small transformer: with AdamW, with vSAM, and with vSAM on LoRA adapters alone.

Needs `pip install 'vsam[transformers]' peft matplotlib`. Nothing is downloaded: a tiny GPT-2 first learns to predict
the next byte of this repository's own text. Then it is fine-tuned to tell where 48 bytes come from: documentation, code
or results.
"""

import copy
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import matplotlib.pyplot as plt
import torch
from peft import LoraConfig, TaskType, get_peft_model
from transformers import GPT2Config, GPT2ForSequenceClassification, GPT2LMHeadModel, Trainer, TrainingArguments
from transformers.trainer_callback import PrinterCallback

import vsam
from vsam.integrations.transformers import SharpnessAwareTrainer

ROOT = Path(__file__).resolve().parents[2]
LENGTH, STEPS = 48, 90
ROOMS = ("docs/methods/*.md", "src/vsam/*.py", "benchmarks/results/small/*.json")
Examples = list[dict[str, torch.Tensor]]


def make_examples() -> tuple[Examples, Examples]:
    """Windows of the files' bytes, labelled by their room: for training, and from other files for testing."""
    parts: tuple[Examples, Examples] = [], []
    for label, pattern in enumerate(ROOMS):
        for number, path in enumerate(sorted(ROOT.glob(pattern))[:14]):
            text = torch.frombuffer(bytearray(path.read_bytes()[:6000]), dtype=torch.uint8).long()
            windows = text[: len(text) // LENGTH * LENGTH].view(-1, LENGTH)[: 60 if number % 3 else 30]
            parts[number % 3 == 0].extend({"input_ids": window, "labels": torch.tensor(label)} for window in windows)
    return parts


def arguments(folder: str, learning_rate: float) -> TrainingArguments:
    return TrainingArguments(
        folder,
        max_steps=STEPS,
        per_device_train_batch_size=32,
        learning_rate=learning_rate,
        max_grad_norm=1.0,
        logging_steps=5,
        save_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
        report_to="none",
    )


def pretrain(examples: Examples, folder: str) -> GPT2Config:
    """Train on the next byte, return the settings, and leave the weights in the folder."""
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=256, n_positions=LENGTH, n_embd=64, n_layer=2, n_head=4, num_labels=len(ROOMS))
    config.pad_token_id = 0
    model = GPT2LMHeadModel(config)
    text = [{"input_ids": example["input_ids"], "labels": example["input_ids"]} for example in examples]
    trainer = Trainer(model, arguments(folder, 3e-3), train_dataset=text)
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    torch.save(model.transformer.state_dict(), f"{folder}/body.pt")
    return config


def make_classifier(config: GPT2Config, folder: str, is_lora: bool) -> torch.nn.Module:
    torch.manual_seed(1)
    model = GPT2ForSequenceClassification(copy.deepcopy(config))
    model.transformer.load_state_dict(torch.load(f"{folder}/body.pt"))
    if not is_lora:
        return model
    settings = LoraConfig(task_type=TaskType.SEQ_CLS, r=4, target_modules=["c_attn"], fan_in_fan_out=True)
    return get_peft_model(model, settings)


def finetune(model: torch.nn.Module, train: Examples, test: Examples, folder: str, is_vsam: bool, rate: float):
    """Losses over the steps, accuracy on the test windows, trained parameters, passes per step."""
    kind, method = Trainer, {}
    if is_vsam:  # the two lines that change
        settings = {"rho": 0.01, "budget": 0.2}
        kind, method = SharpnessAwareTrainer, {"optimizer_cls_and_kwargs": (vsam.VSAM, settings)}
    trainer = kind(model, arguments(folder, rate), train_dataset=train, **method)
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    with torch.no_grad():
        guesses = model.eval()(torch.stack([one["input_ids"] for one in test])).logits.argmax(1)
    accuracy = 100 * (guesses == torch.stack([one["labels"] for one in test])).float().mean().item()
    num_trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    return losses, accuracy, num_trained, trainer.optimizer.optimizer.cost if is_vsam else 1.0


def main(out: str | Path = ".") -> dict[str, tuple[list[float], float, int, float]]:
    train, test = make_examples()
    results = {}
    with TemporaryDirectory() as folder:
        config = pretrain(train, folder)
        for name, is_vsam, is_lora, rate in (("AdamW", 0, 0, 1e-3), ("vSAM", 1, 0, 1e-3), ("vSAM, LoRA", 1, 1, 1e-2)):
            model = make_classifier(config, folder, bool(is_lora))
            results[name] = finetune(model, train, test, folder, bool(is_vsam), rate)
            _, accuracy, num_trained, cost = results[name]
            print(f"{name}: {accuracy:.1f} %, {num_trained:,} trained parameters, {cost:.2f} passes per step")
    plt.rcParams["svg.hashsalt"] = "vsam"
    figure, axes = plt.subplots(figsize=(7, 3.4), layout="constrained")
    for name, (losses, accuracy, num_trained, cost) in results.items():
        label = f"{name}: {accuracy:.0f} % on other files, {num_trained:,} weights, {cost:.2f} passes"
        axes.plot([5 * (i + 1) for i in range(len(losses))], losses, label=label)
    axes.set(xlabel="step", ylabel="training loss", title="Documentation, code or results? One seed")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure.savefig(Path(out) / "transformer.svg", metadata={"Date": None})
    plt.close(figure)
    return results


if __name__ == "__main__":
    main(*sys.argv[1:])
