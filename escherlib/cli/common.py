"""Options that several commands share, and what they all do with them."""

import os
from pathlib import Path

import click

from escherlib.errors import UserError

REPORT_OPTIONS = [
    click.option("--format", "formats", default="all", help="comma list of md, html, pdf; or all"),
    click.option("--target", default=None, help="profile id, alias or name pattern to present the run as"),
    click.option("--marking", default=None, help="text on every page, such as a confidentiality notice"),
    click.option("--report-config", default=None, help="file that replaces parameters/report.yaml"),
    click.option("--embed/--no-embed", default=True, help="keep charts inside the HTML, or as files beside it"),
]
GEOMETRY_OPTIONS = [
    click.option("--depth", type=int, default=None, help="blocks"),
    click.option("--frames", type=int, default=None, help="latent frames a chunk"),
    click.option("--window", type=int, default=None, help="latent frames in the KV window"),
    click.option("--text-tokens", type=int, default=None, help="text tokens"),
]
OVERRIDES = ("depth", "frames", "window", "text_tokens")
MODELS_OPTION = click.option("--models", "models_file", default=None, help="file that replaces parameters/models.yaml")
PARAMS_OPTION = click.option("--params", default=None, help="folder whose files override parameters/")
ROOT_OPTION = click.option("--results-dir", default=None, help="folder that holds the runs (default executed/)")


def with_options(options):
    """Decorator that adds a list of click options."""

    def add(command):
        for option in reversed(options):
            command = option(command)
        return command

    return add


def use_parameters(folder):
    """Make a PARAMS folder count for this process and all it starts."""
    folder = folder or os.environ.get("ESCHER_PARAMS")
    if folder:
        if not Path(folder).is_dir():
            raise UserError(f"PARAMS={folder}: no such folder; it holds files that override those of parameters/")
        os.environ["ESCHER_PARAMS"] = str(Path(folder).absolute())


def find(run_spec, results_dir):
    """Folder of the run that was asked for."""
    from escherlib.run.directory import find_run

    return find_run(run_spec, results_dir)


def report_options(options):
    """The report's share of the command line."""
    return {name: options[name] for name in ("formats", "target", "marking", "report_config", "embed")}
