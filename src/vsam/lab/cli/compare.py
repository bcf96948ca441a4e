"""`vsam compare`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from vsam.lab.cli import complete, options
from vsam.lab.cli.options import option
from vsam.lab.cli.output import check_runs, make_console, say
from vsam.lab.errors import RunError, UserError
from vsam.lab.files import check_output, is_standard_output, write_atomically, write_output
from vsam.lab.methods import all_methods, find_method
from vsam.lab.progress import make_progress

if TYPE_CHECKING:
    from vsam.lab.rows import Row

__all__ = ["compare", "method_names"]

_File = Path | None


def _output(name: str) -> Any:
    return option(f"--{name}", f"Write the table as {name}; - for stdout.", metavar="FILE")


def compare(
    recipe: Annotated[str, option("--recipe", "A recipe's name or file.", complete.recipes)] = "fashion-mini",
    methods: Annotated[str, option("--methods", "Comma-separated names, or 'all'.", complete.methods)] = "sgd,sam,vsam",
    seeds: Annotated[int, option("--seeds", "Number of seeds, at least 1.")] = 3,
    out: options.Out = None,
    tiny: options.Tiny = False,
    changes: options.Changes = None,
    use: options.Use = None,
    data_dir: options.DataDir = None,
    device: options.Device = None,
    ray: options.Ray = None,
    tensorboard: options.TensorBoard = False,
    json: Annotated[_File, _output("json")] = None,
    csv: Annotated[_File, _output("csv")] = None,
    markdown: Annotated[_File, _output("markdown")] = None,
    latex: Annotated[_File, _output("latex")] = None,
) -> None:
    """Compare methods over several seeds in a table.

    Finished runs are kept. Rerun the same command to resume.
    """
    from vsam.lab.compare import compare as run_comparison
    from vsam.lab.ray import choose_ray_device, trainer
    from vsam.lab.recipes.load import load_recipe
    from vsam.lab.report.tables import NOTES, WRITERS, to_record, to_terminal
    from vsam.lab.rows import by_label, summarise
    from vsam.lab.run import run_path
    from vsam.lab.tensorboard import observer

    options.check_seeds(seeds)
    if any(change.partition("=")[0].strip() == "method" for change in changes or ()):
        raise UserError("--set method=… is for vsam train: a comparison takes its methods from --methods.")
    names = method_names(methods)
    files = {"json": json, "csv": csv, "markdown": markdown, "latex": latex}
    to_output = [name for name, file in files.items() if is_standard_output(file)]
    if len(to_output) > 1:
        raise UserError(f"Only one table can go to stdout, got - for {' and '.join(to_output)}.")
    chosen, target, observe = choose_ray_device(device, ray), options.folder(out) or Path("runs"), observer(tensorboard)
    first = load_recipe(recipe, tiny=tiny, changes=changes or ())
    for file in files.values():
        check_output(file)
    recipes = [first.updated(method=name, seed=first.seed + i) for i in range(seeds) for name in names]
    place = run_path(target, first).parent.parent
    with options.resumable(), trainer(ray) as train, make_progress() as progress:
        runs, failures = run_comparison(recipes, target, data_dir, chosen, progress, observe, train)
    rows = summarise(by_label(runs))
    if rows:
        is_kept = _keep(place, to_record(options.typed_command(), rows, runs), rows)
        for name, file in files.items():
            write_output(file, WRITERS[name](rows))
        if not to_output:
            console = make_console()
            console.print(to_terminal(rows))
            console.print(NOTES)
            if is_kept:
                say(f"Picture: {place / 'accuracy-cost.png'}")
            say(f"Runs: {place}")
    check_runs(failures, [f"{run.path}: {run.problem}" for run in runs if run.problem])


def method_names(methods: str) -> list[str]:
    """The methods named by an option, without duplicates. An unknown name is an error."""
    if methods == "all":
        return [method.name for method in all_methods()]
    names = [name.strip() for name in methods.split(",") if name.strip()]
    if not names:
        raise UserError("--methods needs at least one name, e.g. sgd,sam,vsam.")
    for name in names:
        find_method(name)
    return list(dict.fromkeys(names))


def _keep(place: Path, record: str, rows: "Sequence[Row]") -> bool:
    """Write the record and the picture next to the runs. With finished runs, the folder may be read-only."""
    from vsam.lab.report.figures import cost_figure, save  # matplotlib takes a second to import

    try:
        write_atomically(place / "comparison.json", record)
        save(cost_figure(rows), place / "accuracy-cost")
    except RunError as error:
        say(f"Note: {error}", err=True)
        return False
    return True
