"""`vsam study`."""

import json as json_module
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vsam.lab.cli import complete, options
from vsam.lab.cli.compare import method_names
from vsam.lab.cli.options import option
from vsam.lab.cli.output import check_runs, make_console, say, show_table
from vsam.lab.errors import UserError
from vsam.lab.files import check_output, is_standard_output, make_folder, write_atomically, write_output
from vsam.lab.study.plan import SCALES, SEEDS, STUDIES, Parts, Scale

if TYPE_CHECKING:
    from vsam.lab.run import Run

__all__ = ["study"]


def study(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Without it, list them.", autocompletion=complete.studies)
    ] = None,
    scale: Annotated[
        str, option("--scale", "tiny (seconds), small (hours on two cores) or paper (GPUs for weeks).", complete.scales)
    ] = "small",
    out: options.Out = None,
    seeds: Annotated[int | None, option("--seeds", "Number of seeds. Default: as before, else 3 (tiny 1).")] = None,
    only: Annotated[list[str] | None, option("--only", "Run only this part.", metavar="PART")] = None,
    methods: Annotated[str, option("--methods", "Run only these, comma-separated.", complete.methods)] = "all",
    dry_run: Annotated[bool, option("--dry-run", "Only show what would be trained.")] = False,
    compare_paper: Annotated[
        bool, option("--compare-paper", "Show which of the paper's claims the studies in FOLDER support.")
    ] = False,
    ray: options.Ray = None,
    json: options.JsonFile = None,
    use: options.Use = None,
    data_dir: options.DataDir = None,
    device: options.Device = None,
    tensorboard: options.TensorBoard = False,
) -> None:
    """Run a table or figure of the paper.

    Trains what is missing, then writes numbers, tables and figures. Rerun the same command to resume.
    """
    chosen = next((known for known in SCALES if known == scale), None)
    if chosen is None:
        raise UserError(f"--scale must be one of {', '.join(SCALES)}, got {scale!r}.")
    target = options.folder(out) or Path("studies") / chosen
    if name is None and not compare_paper:
        say("Studies, each a table or figure of the paper:\n")
        show_table(("study", "what it shows"), [(key, one.title) for key, one in STUDIES.items()])
        say("\nRun one with vsam study NAME --scale tiny.")
        return None
    if name is not None and name not in STUDIES:
        raise UserError(f"There is no study {name!r}. Known: {', '.join(STUDIES)}.")
    if compare_paper and (name is not None or dry_run):
        raise UserError("--compare-paper only reads studies: leave out the name and --dry-run.")
    check_output(json)
    if name is None:
        return _compare_paper(target, json)
    if seeds is not None:
        options.check_seeds(seeds)
    named = () if methods == "all" else tuple(method_names(methods))
    wanted, parts = _plan(name, chosen, target, seeds, tuple(only or ()), named)
    if dry_run:
        return _show_plan(wanted, target, json)
    from vsam.lab.ray import choose_ray_device, trainer
    from vsam.lab.study.run import run_study, write_study
    from vsam.lab.tensorboard import observer

    where, observe = choose_ray_device(device, ray), observer(tensorboard)
    make_folder(target)
    with options.resumable(), trainer(ray) as train:
        content = run_study(name, chosen, parts, wanted, target, data_dir, where, train=train, observe=observe)
    if content["rows"]:
        paths = write_study({**content, "command": options.typed_command()}, target)
        write_output(json, json_module.dumps(content, indent=2) + "\n")
        if not is_standard_output(json):
            _show(content, target, paths)
    check_runs(content["failures"], ())
    return None


def _plan(
    name: str, scale: Scale, out: Path, seeds: int | None, only: Sequence[str], methods: Sequence[str]
) -> tuple[Parts, Parts]:
    """Return the recipes to train, and all of the study's. Its seeds are those of before unless the user says."""
    from vsam.lab.study.claims import read_studies
    from vsam.lab.study.run import chosen_parts

    try:
        before = read_studies(out, [name]).get(name)
    except UserError:  # it will be rewritten
        before = None
    if before is not None and before["scale"] != scale:
        raise UserError(f"{out} has {name} at scale {before['scale']}, not {scale}. Choose another folder with --out.")
    old = max((int(row.get("seeds", 0)) for row in before["rows"]), default=0) if before else 0
    parts = STUDIES[name].parts(scale, seeds or max(SEEDS[scale], old), out / "runs")
    return chosen_parts(parts, only, methods), parts


def _show_plan(wanted: Parts, out: Path, json: Path | None) -> None:
    """Show how many runs are left, and the time of those whose method was timed in this folder."""
    from vsam.lab.run import read_run, run_path

    rows: list[dict[str, Any]] = []
    for part, recipes in wanted.items():
        runs = [read_run(run_path(out / "runs", recipe)) for recipe in recipes]
        done = [run for run in runs if run.is_finished]
        hours = sum(_seconds(recipe.label, done) for recipe, run in zip(recipes, runs, strict=True) if run not in done)
        numbers = {"runs": len(runs), "finished": len(done), "missing": len(runs) - len(done), "hours": hours / 3600}
        rows.append({"part": part, **numbers})
    write_output(json, json_module.dumps(rows, indent=2) + "\n")
    if not is_standard_output(json):
        lines = [[*map(str, list(row.values())[:4]), f"{row['hours']:.1f}" if row["hours"] else "?"] for row in rows]
        show_table(("part", "runs", "finished", "to train", "hours"), lines)
        say("\nNothing was trained. Hours are those of finished runs in the folder; vsam recipes NAME tells more.")


def _seconds(label: str, done: "Sequence[Run]") -> float:
    """Return the time of finished runs with that label, else of all of them, else 0."""
    times = [run.summary["seconds"] for run in done if run.label == label] or [run.summary["seconds"] for run in done]
    return sum(times) / len(times) if times else 0.0


def _show(content: dict[str, Any], out: Path, paths: Sequence[Path]) -> None:
    from vsam.lab.report.tables import NOTES, to_terminal
    from vsam.lab.study.run import tables

    console = make_console()
    for part, rows in tables(content).items():
        say(f"{part}, scale {content['scale']}")
        console.print(to_terminal(rows))
    console.print(NOTES)
    for path in paths:
        say(path)
    say(f"Report on all runs: {shlex.join(['vsam', 'report', str(out), '-o', str(out / 'report.html')])}")


def _compare_paper(out: Path, json: Path | None) -> None:
    """Judge the paper's claims by a folder's studies."""
    from vsam.lab.study.claims import LEGEND, judge, overview, read_studies, to_dict, to_markdown

    studies = read_studies(out)
    if not studies:
        raise UserError(f"{out} has no study yet. Run vsam study table1 first, or give another folder with --out.")
    verdicts = judge(studies)
    sentence, lines = overview(verdicts)
    write_atomically(out / "claims.md", to_markdown(verdicts))
    write_output(json, json_module.dumps(to_dict(verdicts), indent=2, ensure_ascii=False) + "\n")
    if not is_standard_output(json):
        say(f"{sentence}\n")
        show_table(lines[0], lines[1:])
        say(f"\n{LEGEND}\n\nEvery setting with its interval: {out / 'claims.md'}")
