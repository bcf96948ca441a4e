"""Run a study on `compare`, and write its numbers, tables and figures."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from vsam.lab.compare import Train, compare
from vsam.lab.errors import DamagedError, UserError
from vsam.lab.files import make_folder, write_atomically
from vsam.lab.progress import make_progress
from vsam.lab.recipes.recipe import BASES, Recipe
from vsam.lab.report.tables import NOTES, to_latex, to_markdown
from vsam.lab.rows import Row, by_label, seed_speed, summarise
from vsam.lab.run import Run, check_settings, read_run, run_path
from vsam.lab.statistics import difference, mean
from vsam.lab.study.plan import STUDIES, Parts, Scale
from vsam.lab.tensorboard import Observe
from vsam.lab.text import for_markdown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["chosen_parts", "figures", "page", "run_study", "tables", "write_files", "write_study"]

_SEGMENTS = 64  # of a run, over which the norms are averaged
_NORMS = {
    "grad_norms": "grad_norm",
    "psf_norms": "psf_norm",
    "changes_var": "change_var",
    "changes_norm": "change_norm",
}
Record = Mapping[str, Any]


def chosen_parts(parts: Parts, only: Sequence[str], methods: Sequence[str]) -> Parts:
    """Return what `--only` and `--methods` leave of a plan, which must contain what they name."""
    known = {"part": list(parts), "method": [recipe.method for recipes in parts.values() for recipe in recipes]}
    for kind, names in (("part", only), ("method", methods)):
        if unknown := [name for name in names if name not in known[kind]]:
            have = ", ".join(dict.fromkeys(known[kind]))
            raise UserError(f"The study has no {kind} {unknown[0]!r} at this scale. It has: {have}.")
    kept = {
        name: [one for one in recipes if not methods or one.method in methods or one.role == "full-precision source"]
        for name, recipes in parts.items()
        if not only or name in only
    }
    return {name: recipes for name, recipes in kept.items() if recipes}


def run_study(
    name: str,
    scale: Scale,
    parts: Parts,
    wanted: Parts,
    out: Path,
    data_dir: Path | None,
    device: torch.device,
    *,
    train: Train | None = None,
    observe: Observe = lambda run: None,
) -> dict[str, Any]:
    """Train what is missing of a study, below `out/runs`, and return its record.

    Args:
        name: of the study.
        scale: tiny, small or paper.
        parts: all its recipes, by part. The record has all that are finished.
        wanted: those to train.
        out: the folder of all studies. Runs that several of them need are trained once.
        data_dir, device: as for `compare`.
        train, observe: likewise.
    """
    runs, failures = out / "runs", list[str]()
    for recipe in (recipe for recipes in wanted.values() for recipe in recipes):
        with suppress(DamagedError):  # listed at the end; other settings are an error before anything is trained
            check_settings(read_run(run_path(runs, recipe)), recipe)
    for part, recipes in wanted.items():
        ready = [recipe for recipe in recipes if _is_ready(recipe)]
        failures += [f"{part} {r.label}, seed {r.seed}: its source is not trained." for r in recipes if r not in ready]
        with make_progress() as progress:
            stopped = compare(ready, runs, data_dir, device, progress, observe, train)[1] if ready else []
        failures += [f"{part} {failure}" for failure in stopped]
    found = {part: [read_run(run_path(runs, recipe)) for recipe in recipes] for part, recipes in parts.items()}
    finished = {part: [run for run in some if run.is_finished] for part, some in found.items()}
    summaries = [run.summary for some in finished.values() for run in some]
    environments = {json.dumps(one["environment"], sort_keys=True) for one in summaries if "environment" in one}
    return {
        "study": name,
        "scale": scale,
        "rows": [row for part, some in finished.items() for row in _rows(name, part, some)],
        "failures": failures,
        "training_seconds": sum(one["seconds"] for one in summaries),
        "environments": [json.loads(text) for text in sorted(environments)],
    }


def _is_ready(recipe: Recipe) -> bool:
    """Return whether the run that a quantized one starts from is finished."""
    checkpoint = recipe.quantize.checkpoint if recipe.quantize else "none"
    return checkpoint == "none" or (read_run(Path(checkpoint).parent).is_finished and Path(checkpoint).exists())


def _rows(name: str, part: str, runs: Sequence[Run]) -> Iterator[dict[str, Any]]:
    """Yield the rows of a comparison, with what was varied and the numbers per seed."""
    groups, varied = by_label(runs), STUDIES[name].varied if name in STUDIES else None
    for row in summarise(groups):
        own, sam = groups[row.label], {run.seed: run for run in groups.get("sam", ())}
        first = own[0]
        record = {
            **row.to_dict(),
            "recipe": part,
            "noise": first.recipe.data.noise if first.recipe else 0.0,
            "label": row.label,
            "role": first.settings.get("role", "run"),
            "speed_quartiles": row.quartiles,
            "speed_to_sam_quartiles": row.quartiles_to_sam,
            "seed_list": [run.seed for run in own],
            "accuracies": [run.summary["accuracy"] for run in own],
            "samples_each": [run.summary["samples"] for run in own],
            "ais_each": [run.summary["ais"] for run in own],
            "speed_to_sam_each": [seed_speed(run, sam[run.seed]) if run.seed in sam else None for run in own],
        }
        if varied is not None:
            is_vsam = first.method == "vsam" and first.recipe is not None
            record[varied] = getattr(first.recipe.vsam, varied) if is_vsam and first.recipe else None
        if name == "norms":
            by_seed = [_norms(run) for run in own]
            record |= {key: [norms[key] for norms in by_seed] for key in by_seed[0]}
        yield record


def _norms(run: Run) -> dict[str, list[float | None]]:
    """Return the means of ‖g‖, ‖PSF‖, ĉ_var and ĉ_norm over segments of the run, and the fraction of sampled steps.

    A segment without a sampled step has None. SAM samples every step, so its norms have no gaps.
    """
    steps = run.summary["steps"]
    count = min(_SEGMENTS, steps)
    lines: list[list[dict[str, Any]]] = [[] for _ in range(count)]
    expected = run.summary["samples"] - run.summary.get("skipped", 0)
    if run.steps.problem or len(run.steps) != expected:
        raise UserError(f"{run.path / 'steps.jsonl'} is damaged. Delete the run's folder to retrain it.")
    for line in run.steps:
        lines[min((line["step"] - 1) * count // steps, count - 1)].append(line)
    ends = [-(-i * steps // count) for i in range(count + 1)]
    found: dict[str, list[float | None]] = {}
    for name, key in _NORMS.items():
        values = [[one[key] for one in some if one.get(key) is not None and math.isfinite(one[key])] for some in lines]
        found[name] = [mean(some) if some else None for some in values]
    return found | {"rates": [len(some) / (ends[i + 1] - ends[i]) for i, some in enumerate(lines)]}


def tables(content: Record) -> dict[str, list[Row]]:
    """Return the rows of a study's record by part, each of vSAM's named by what was varied."""
    varied, found = STUDIES[content["study"]].varied if content["study"] in STUDIES else None, dict[str, list[Row]]()
    for part, records in _by_part(content["rows"]).items():
        by_seed = [dict(zip(one["seed_list"], one["accuracies"], strict=True)) for one in records]
        base = next((i for i, one in enumerate(records) if one["label"] in BASES), None)
        for i, one in enumerate(records):
            value = one.get(varied) if varied else None
            known: dict[str, Any] = {each.name: one.get(each.name) for each in fields(Row)}
            known["quartiles"], each = one["speed_quartiles"], one["speed_to_sam_each"]
            timed = (min(each), max(each)) if each and all(each) else None  # older records have no quartiles to SAM
            known["quartiles_to_sam"] = one.get("speed_to_sam_quartiles", timed)
            known["label"] = one["label"] if value is None else f"vsam {varied}={value:g}"
            known["to_base"] = None if base in (None, i) else difference(by_seed[i], by_seed[base or 0])
            found.setdefault(part, []).append(Row(**known))
    return found


def page(content: Record, title: str = "", notes: str = "") -> str:
    """Return a study's page in Markdown, from its record: a table per part."""
    title = title or STUDIES[content["study"]].title
    sections = [f"# {title}\n\nScale: {content['scale']}.\n"]
    sections += [f"## {part}\n\n{to_markdown(rows, notes=False)}" for part, rows in tables(content).items()]
    return "\n".join([*sections, *([notes] if notes else []), f"## Columns\n\n{for_markdown(NOTES)}\n"])


def figures(content: Record) -> "dict[str, Figure]":
    """Return a study's figures by file name, drawn from its record."""
    from vsam.lab.report.figures import Curve, cost_figure, curves, styles_for

    name, found = content["study"], dict[str, Any]()
    varied = STUDIES[name].varied
    for part, records in _by_part(content["rows"]).items():
        if varied:
            own, sam = [one for one in records if one[varied] is not None], [o for o in records if o["method"] == "sam"]
            x = [one[varied] for one in own]
            y, low, high = ([f(one["accuracies"]) for one in own] for f in (mean, min, max))
            lines = [Curve("vsam", x, y, low, high)] if own else []
            lines += [Curve("sam", x, [one["accuracy"]] * len(x)) for one in sam if x]
            axes: dict[str, Any] = {"x": {"alpha": "α", "gamma": "γ"}[varied], "is_count": False}
            if lines:
                found[f"{name}-{part}"] = curves(lines, styles_for(("sam", "vsam")), y="test accuracy, %", **axes)
        elif name == "norms":
            for method, keys, unit in (
                ("sam", {"grad_norms": "‖g‖", "psf_norms": "‖PSF‖"}, "norm in SAM's run"),
                ("vsam", {"rates": "vsam"}, "fraction of sampled steps"),
            ):
                row = next((one for one in records if one["method"] == method), None)
                if row is not None:
                    lines = [_over_steps(row, key, label) for key, label in keys.items()]
                    styles, is_log = styles_for(keys.values()), method == "sam"
                    found[f"{name}-{part}-{method}"] = curves(lines, styles, x="step", y=unit, is_log=is_log)
        elif len(records) > 1:
            found[f"{name}-{part}"] = cost_figure(tables(content)[part])
    return found


def _over_steps(row: Record, key: str, label: str) -> Any:
    from vsam.lab.report.figures import Curve

    columns = [[value for value in column if value is not None] for column in zip(*row[key], strict=True)]
    known = [(i, column) for i, column in enumerate(columns) if column]
    x = [(i + 1) * row["steps"] / len(columns) for i, _ in known]
    y, low, high = ([f(column) for _, column in known] for f in (mean, min, max))
    return Curve(label, x, y, low, high)


def write_study(content: Record, out: Path) -> list[Path]:
    """Write numbers, tables and figures of a study to its folder, and return the files."""
    latex = out / f"{content['study']}.tex"
    paths = write_files(content, out, page(content), figures(content))
    write_atomically(latex, "\n".join(map(to_latex, tables(content).values())))
    return [latex, *paths]


def write_files(content: Record, out: Path, page: str, figures: "Mapping[str, Figure]") -> list[Path]:
    """Write a study's record, page and figures, and return the files."""
    from vsam.lab.report.figures import save  # matplotlib takes a second to import

    make_folder(out / "figures")
    paths = [out / f"{content['study']}.json", out / f"{content['study']}.md"]
    for path, text in zip(paths, (json.dumps(content, indent=2, allow_nan=False) + "\n", page), strict=True):
        write_atomically(path, text)
    return [*paths, *(path for name, figure in figures.items() for path in save(figure, out / "figures" / name))]


def _by_part(rows: Sequence[Record]) -> dict[str, list[Record]]:
    found: dict[str, list[Record]] = {}
    for row in rows:
        found.setdefault(row["recipe"], []).append(row)
    return found
