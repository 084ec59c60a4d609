"""The front door: which runs are here, and what one of them says at a glance. For START.ipynb."""

from escherlib.errors import UserError
from escherlib.files import ROOT, read_json
from escherlib.report import charts, executive, theme
from escherlib.report.display import not_measured

NOTHING = "no run and no example is here yet; `make benchmark` makes the first one"


def choices(root=None):
    """Label → path of every run below `root` (None: the results folder), newest first, then the examples."""
    from escherlib.run import directory

    root = root or directory.results_root()
    interactive = sorted((p.parent for p in root.glob("interactive-*/run.json")), reverse=True)
    examples = sorted(p.parent for p in (ROOT / "executed" / "examples").glob("*/run.json"))
    found = {}
    for path in [*reversed(directory.list_runs(root)), *interactive, *examples]:
        manifest = read_json(path / "run.json")
        finished = sum(entry.get("status") == "finished" for entry in manifest.get("families", {}).values())
        kind = "example " if path in examples else ""
        found[f"{kind}{path.name} · {manifest['device'].get('name')} · {finished} families finished"] = path
    return found


def open_first(found):
    """Results of the first run of `choices` that can be read; None where there is none."""
    from escherlib.run import load_results

    for path in found.values():
        try:
            return load_results(path)
        except UserError:
            continue
    return None


def headline_table(results):
    """Measured, ceiling and verdict of each family of a run."""
    if results is None:
        return not_measured("Headline figures", NOTHING)
    from escherlib.judge import scorecard
    from escherlib.parameters import load_scoring

    return executive.table(results, scorecard.score(results, load_scoring(), artefacts=None))


def roofline(results):
    """The run's roofline."""
    return not_measured("Roofline", NOTHING) if results is None else charts.roofline(results)


def picker(found):
    """A list of runs to choose from, with table and roofline of the chosen one below. It reads and never
    measures.
    """
    import ipywidgets
    from IPython.display import display

    from escherlib.run import load_results

    if not found:
        return not_measured("Runs", NOTHING)
    menu = ipywidgets.Dropdown(options=found, description="run", layout={"width": "48em"})
    below = ipywidgets.Output()

    def show_chosen(change):
        below.clear_output(wait=True)
        with below:
            results = load_results(change["new"])
            display(headline_table(results))
            theme.show(roofline(results))

    menu.observe(show_chosen, names="value")
    return ipywidgets.VBox([menu, below])


__all__ = ["choices", "headline_table", "open_first", "picker", "roofline"]
