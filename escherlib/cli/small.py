"""Commands that measure nothing and answer at once: list, models, workload, identify, parse, doctor."""

import json

import click

from escherlib.cli.common import GEOMETRY_OPTIONS, MODELS_OPTION, PARAMS_OPTION, ROOT_OPTION, use_parameters, with_options


@click.command("list")
@ROOT_OPTION
@PARAMS_OPTION
def list_command(results_dir, params):
    """Show test cases, suites, workloads, device profiles and runs."""
    from escherlib import parameters
    from escherlib.files import read_json
    from escherlib.run import directory, testcases

    use_parameters(params)
    click.echo("test cases  " + " ".join(testcases.known()))
    click.echo("suites      " + " ".join(parameters.list_suites()))
    click.echo("workloads   " + " ".join(parameters.list_workloads()))
    click.echo("devices     " + " ".join(parameters.load_devices()))
    root = directory.results_root(results_dir)
    for path in [*directory.list_runs(root), *sorted(p.parent for p in root.glob("examples/*/run.json"))]:
        manifest = read_json(path / "run.json")
        ended = [f"{name[:2]} {entry['status']}" for name, entry in sorted(manifest["families"].items())]
        click.echo(f"run         {path.relative_to(root)} · {manifest['suite']} · {', '.join(ended) or 'nothing measured'}")
    return 0


@click.command()
@MODELS_OPTION
@PARAMS_OPTION
def models(models_file, params):
    """List the reference models: geometry, hub id, licence, and the workload that stands for each."""
    from escherlib.parameters import load_models
    from escherlib.report import tables_accounting

    use_parameters(params)
    click.echo(tables_accounting.models(load_models(models_file)).to_text())
    return 0


@click.command()
@click.argument("name", required=False)
@with_options(GEOMETRY_OPTIONS)
@click.option("--csv", "as_csv", is_flag=True, help="the table as CSV with raw values")
@PARAMS_OPTION
def workload(name, params, as_csv, **overrides):
    """Print the operations of a workload: shapes, FLOP, bytes, totals, drift against the published ones."""
    from escherlib import parameters
    from escherlib.report import tables_accounting

    use_parameters(params)
    loaded = parameters.load_workload(name or parameters.DEFAULT_WORKLOAD, **overrides)
    table = tables_accounting.block_ops(loaded)
    if as_csv:
        click.echo(table.to_csv(), nl=False)
        return 0
    click.echo("\n".join([table.to_text(), "", *tables_accounting.totals_lines(loaded)]))
    return 0


@click.command()
@click.option("--name", default="", help="name the driver or lscpu gives")
@click.option("--arch", default=None, help="gfx950, sm_90, …")
@click.option("--memory-gib", type=float, default=None)
@click.option("--compute-units", type=int, default=None)
@click.option("--pci-id", default=None, help="device id, such as 0x75a3 or 1002:75a3")
@click.option("--power-cap-w", type=float, default=None)
@click.option("--clock-mhz", type=float, default=None)
@PARAMS_OPTION
def identify(params, **facts):
    """Say which device profile a name and other facts belong to, as JSON. Needs no hardware."""
    from escherlib.hardware.identify import identify_command

    use_parameters(params)
    click.echo(json.dumps(identify_command(**facts), indent=1, ensure_ascii=False))
    return 0


@click.command()
@click.argument("tool")
@click.argument("file")
def parse(tool, file):
    """Read a saved output of a tool (amd-smi, rvs, nccl-tests, …) and print what it says as JSON."""
    from escherlib.tools.command import parse_command

    text, code, line = parse_command(tool, file)
    click.echo(text)
    click.echo(line or "", err=True, nl=bool(line))
    return code


@click.command()
@click.option("--device", default="auto", help="as for benchmark")
def doctor(device):
    """Check that the software stack fits the device, and list optional backends."""
    from escherlib.bootstrap.doctor import run_doctor

    return run_doctor(device)
