"""`python -m escherlib <command>`: the sequence notebooks → score → report, and the small commands around it.

Exit codes: 0 ok · 1 a gating or validation FAIL, or a family that failed · 2 bad input (one line on stderr).
Nothing here imports torch, altair or pandas before it is needed: help, list and identify answer at once.
"""

import json
import os
import sys
import traceback
from pathlib import Path

import click

from escherlib import __version__
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


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="escherlib")
def commands():
    """Escher microbenchmarks: how close is this machine to its limits on escher_14b_480p?"""


@commands.command()
@click.option("--device", default="auto", help="auto, cpu, cuda, rocm, profile id, family alias or name pattern")
@click.option("--suite", default=None, help="smoke, headline, standard (default) or full")
@click.option("--testcase", default="benchmark", help="comma list of test cases; `list` shows them")
@click.option("--all", "all_workloads", is_flag=True, help="one run for every workload")
@click.option("--workload", default=None, help="workload name (see `list`)")
@click.option("--reference-model", default=None, help="model id whose workload is run (see `models`)")
@MODELS_OPTION
@with_options(GEOMETRY_OPTIONS)
@PARAMS_OPTION
@click.option("--run", "run_spec", default=None, help="run to resume (id or path)")
@click.option("--force", is_flag=True, help="measure again what is already measured; the old records stay")
@click.option("--iterations", type=click.IntRange(min=1), default=1, help="whole passes with fresh kernels")
@ROOT_OPTION
@click.option("--stat", type=click.Choice(["on", "off"]), default="on", help="telemetry beside the measurements")
@click.option("--stat-interval", type=click.FloatRange(min=0.001), default=None, help="seconds between samples")
@click.option("--prepare-sys", is_flag=True, help="steady the system first (needs root; failures are told)")
@click.option("--numactl", default="", help='numactl words for the measuring processes, such as "--localalloc"')
@with_options(REPORT_OPTIONS)
def benchmark(device, suite, testcase, all_workloads, workload, run_spec, params, results_dir, **options):
    """Measure: notebooks, records, scorecard and report. Resumes a run given with --run."""
    from escherlib.run import testcases

    use_parameters(params)
    if testcase == "list":
        click.echo("\n".join(testcases.known()))
        return 0
    if {testcase} <= set(testcases.AFTERWARDS):
        return make_report(find(run_spec, results_dir), **report_options(options))
    overrides = {name: options.pop(name) for name in OVERRIDES}
    model = chosen_model(options.pop("reference_model"), options.pop("models_file"), workload or all_workloads)
    workload = model["workload"] if model else workload
    chosen = {
        "device": device, "suite": suite, "workload": workload, "overrides": overrides, "testcase": testcase, "model": model,
    }  # fmt: skip
    if not all_workloads:
        return run_benchmark(chosen, run_spec, results_dir, options)
    from escherlib.parameters import list_workloads

    if run_spec or workload:
        raise UserError("ALL=1 starts one run for every workload; leave RUN and WORKLOAD out")
    codes = [run_benchmark({**chosen, "workload": name}, None, results_dir, dict(options)) for name in list_workloads()]
    return max(codes)


def chosen_model(name, models_file, workload):
    """{id, workload, hub, …} of the reference model that was asked for, or None."""
    from escherlib.parameters import reference_model

    if name is None:
        if models_file:
            raise UserError("MODELS=: only with REFERENCE_MODEL=<id>; `make models MODELS=<file>` lists a file")
        return None
    if workload:
        raise UserError("REFERENCE_MODEL= names the workload itself; leave WORKLOAD and ALL out")
    return {"id": name, **reference_model(name, models_file).model_dump(mode="json")}


def use_parameters(folder):
    """Make a PARAMS folder count for this process and all it starts."""
    folder = folder or os.environ.get("ESCHER_PARAMS")
    if folder:
        if not Path(folder).is_dir():
            raise UserError(f"PARAMS={folder}: no such folder; it holds files that override those of parameters/")
        os.environ["ESCHER_PARAMS"] = str(Path(folder).absolute())


def report_options(options):
    """The report's share of the command line."""
    return {name: options[name] for name in ("formats", "target", "marking", "report_config", "embed")}


def find(run_spec, results_dir):
    """Folder of the run that was asked for."""
    from escherlib.run.directory import find_run

    return find_run(run_spec, results_dir)


def run_benchmark(chosen, run_spec, results_dir, options):
    """One run from start or resumption to report. Returns the exit code."""
    from escherlib.files import read_json
    from escherlib.run import directory, suite, testcases
    from escherlib.run.console import log_name, make_say
    from escherlib.run.records import now_text

    check_report_options(**report_options(options))
    started = now_text()
    if run_spec:
        path, loaded_suite = resume(find(run_spec, results_dir), chosen, options["numactl"])
    else:
        path, loaded_suite = begin(chosen, results_dir, options["numactl"])
    manifest = read_json(path / "run.json")
    families = testcases.families_of(chosen["testcase"], loaded_suite)
    log = path / "logs" / log_name(chosen["testcase"], manifest["workload"]["name"], read_json(path / "env.json"))
    say = make_say(log, read_json(path / "env.json"))
    say(f"run {path.name} on {manifest['device']['name']} · suite {manifest['suite']} · {path}")
    if options["prepare_sys"]:
        from escherlib.run.prepare import prepare_system

        for setting, outcome in prepare_system().items():
            say(f"prepare-sys: {setting} {outcome}")
    sampling = sampling_environment(options["stat"], options["stat_interval"])
    common = {"numactl": options["numactl"], "sampling": sampling, "force_before": started if options["force"] else ""}
    directory.update_manifest(path, lambda m: m.pop("ended", None))
    try:
        for iteration in range(1, options["iterations"] + 1):
            todo = families if options["force"] else missing(path, families, iteration)
            if iteration > 1:
                say(f"pass {iteration} of {options['iterations']}")
            suite.run_families(path, todo, say, iteration=iteration, **common)
    except KeyboardInterrupt:
        say(f"interrupted; everything measured is kept. Go on with: make benchmark RUN={path.name}")
        return 1
    finally:
        directory.update_manifest(path, lambda m: m.update(ended=now_text()))
    if options["iterations"] > 1:
        from escherlib.run.iterations import write_iterations

        for line in write_iterations(path):
            say(line)
    return make_report(path, say=say, **report_options(options))


def missing(path, families, iteration):
    """Families of one pass that have not finished yet."""
    from escherlib.files import read_json

    key = "families" if iteration == 1 else f"pass_{iteration}"
    ended = read_json(path / "run.json").get(key, {})
    return [family for family in families if ended.get(family, {}).get("status") != "finished"]


def sampling_environment(stat, interval_s):
    """Environment that tells the measuring processes how to sample."""
    found = {"ESCHER_STAT": stat}
    if interval_s is not None:
        found["ESCHER_STAT_INTERVAL_S"] = str(interval_s)
    return found


def begin(chosen, results_dir, numactl):
    """Check everything that was asked for, bind to the machine, create the run. Returns (path, suite)."""
    from escherlib import parameters
    from escherlib.hardware.probe import probe_devices
    from escherlib.hardware.profiles import resolve_device
    from escherlib.run import directory, testcases
    from escherlib.run.bind import bind_in_child
    from escherlib.run.suite import numactl_prefix

    suite = parameters.load_suite(chosen["suite"] or "standard")
    overrides = {name: value for name, value in chosen["overrides"].items() if value is not None}
    name = chosen["workload"] or suite.workload or "escher_14b_480p"
    workload = parameters.load_workload(name, **overrides)
    testcases.families_of(chosen["testcase"], suite)
    resolve_device(chosen["device"], probe_devices(), parameters.load_devices())
    root = directory.results_root(results_dir)
    directory.require_writable(root)
    binding = bind_in_child(chosen["device"], numactl_prefix(numactl))
    kind = binding["device"]["kind"]
    resolved = {family: suite.family_parameters(family, kind) for family in suite.families}
    deadlines = {family: suite.deadline_s(family) for family in suite.families}
    manifest = directory.manifest_for(
        directory.new_run_id(workload.name, binding["device"]), suite.name, workload, binding, resolved,
        deadlines_s=deadlines, **({"reference_model": chosen["model"]} if chosen["model"] else {}),
    )  # fmt: skip
    return directory.create(root, manifest, binding["env"]), suite


def resume(path, chosen, numactl):
    """Check that a run goes on under the conditions it began with. Returns (path, suite)."""
    from escherlib import parameters
    from escherlib.files import read_json
    from escherlib.run import directory
    from escherlib.run.bind import bind_in_child
    from escherlib.run.suite import numactl_prefix

    if directory.is_example(path):
        raise UserError(f"RUN={path}: an example is read only; `make report` and `make analyze` take it")
    manifest = read_json(path / "run.json")
    given = {"SUITE": (chosen["suite"], manifest["suite"]), "WORKLOAD": (chosen["workload"], manifest["workload"]["name"])}
    for switch, (asked, was) in given.items():
        if asked and asked != was:
            raise UserError(f"{switch}={asked}: run {path.name} was begun with {was}; leave {switch} out or start a new run")
    changed = [name for name, value in chosen["overrides"].items() if value is not None]
    if changed:
        raise UserError(f"{changed[0].upper()}: a run keeps the workload it began with; start a new run for another")
    asked = chosen["device"] if chosen["device"] != "auto" else manifest["device"].get("asked", "auto")
    binding = bind_in_child(asked, numactl_prefix(numactl))
    moved = directory.differences(manifest, binding)
    if moved:
        raise UserError(f"run {path.name} cannot go on here, since this moved: {'; '.join(moved)}; start a new run")
    return path, parameters.load_suite(manifest["suite"])


def check_report_options(formats, target, marking, report_config, embed):
    """Refuse bad report switches before anything is measured. Returns the formats as a list."""
    from escherlib import parameters

    known = ("md", "html", "pdf")
    asked = list(known) if formats == "all" else [f.strip() for f in formats.split(",")]
    wrong = [f for f in asked if f not in known]
    if wrong or not asked:
        raise UserError(f"FORMAT={formats}: unknown format {wrong[0]!r}; expected a comma list of md, html, pdf, or all")
    parameters.load_report_config(report_config)
    if target:
        from escherlib.hardware.profiles import resolve_target

        resolve_target(target, parameters.load_devices())
    return asked


def make_report(path, say=click.echo, **options):
    """Charts, scorecard, summary and report from the records. Returns the exit code."""
    formats = check_report_options(**options)
    from escherlib import parameters
    from escherlib.judge import scorecard
    from escherlib.report import artefacts, build
    from escherlib.run import load_results

    target = None
    if options["target"]:
        from escherlib.hardware.profiles import resolve_target

        target = resolve_target(options["target"], parameters.load_devices())
    results = load_results(path, target)
    scoring = parameters.load_scoring()
    say("report: charts, score, chapters", transient=True) if say is not click.echo else None
    switched_off = [
        {"id": f"report.{kind}", "files": [], "ok": None, "reason": "format switched off", "left_out": "format switched off"}
        for kind in artefacts.FORMATS
        if kind not in formats
    ]
    assumed = scorecard.score(results, scoring, artefacts=[*artefacts.left_out(results), *switched_off])
    settings = {
        "formats": formats, "marking": options["marking"], "report_config": options["report_config"],
        "embed": options["embed"],
    }  # fmt: skip
    scorecard.write(results, assumed)
    built = build.build_report(results, assumed, **settings)
    final = scorecard.score(results, scoring, artefacts=artefacts.check(results, formats))
    scorecard.write(results, final)
    if final != assumed:
        built = build.build_report(results, final, **settings)
    for kind, file in built.items():
        say(f"{kind:<10} {file}")
    say(scorecard.headline(final))
    return scorecard.exit_code(results, final)


@commands.command()
@click.option("--run", "run_spec", default=None, help="run (id or path); default the latest that ended")
@ROOT_OPTION
@PARAMS_OPTION
@with_options(REPORT_OPTIONS)
def report(run_spec, results_dir, params, **options):
    """Re-make charts, summary, scorecard and report of a run from its records."""
    use_parameters(params)
    return make_report(find(run_spec, results_dir), **options)


@commands.command()
@click.option("--run", "run_spec", default=None, help="run (id or path); default the latest that ended")
@ROOT_OPTION
@PARAMS_OPTION
@with_options(REPORT_OPTIONS)
def analyze(run_spec, results_dir, params, **options):
    """Re-execute the notebooks of a run on its records, never measuring; then re-make the report."""
    from escherlib.files import read_json
    from escherlib.run import suite

    use_parameters(params)
    path = find(run_spec, results_dir)
    check_report_options(**options)
    manifest = read_json(path / "run.json")
    families = [family for family in manifest["parameters"] if (path / "records" / family).is_dir()]
    entries = suite.run_families(path, families, lambda text, transient=False: click.echo(text), mode="analyze")
    code = make_report(path, **options)
    return 1 if any(entry["status"] == "failed" and "analyzed" in entry for entry in entries.values()) else code


@commands.command("list")
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


@commands.command()
@MODELS_OPTION
@PARAMS_OPTION
def models(models_file, params):
    """List the reference models: geometry, hub id, licence, and the workload that stands for each."""
    from escherlib.parameters import load_models
    from escherlib.report import tables_accounting

    use_parameters(params)
    click.echo(tables_accounting.models(load_models(models_file)).to_text())
    return 0


@commands.command()
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


@commands.command()
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


@commands.command()
@click.argument("tool")
@click.argument("file")
def parse(tool, file):
    """Read a saved output of a tool (amd-smi, rvs, nccl-tests, …) and print what it says as JSON."""
    from escherlib.tools.command import parse_command

    text, code, line = parse_command(tool, file)
    click.echo(text)
    click.echo(line or "", err=True, nl=bool(line))
    return code


@commands.command()
@click.option("--device", default="auto", help="as for benchmark")
def doctor(device):
    """Check that the software stack fits the device, and list optional backends."""
    from escherlib.bootstrap.doctor import run_doctor

    return run_doctor(device)


def main(arguments=None):
    """Run the command line; end the process with its exit code. A user's mistake is one line on stderr and code 2."""
    try:
        code = commands.main(arguments, standalone_mode=False)
    except UserError as error:
        click.echo(f"error: {error}", err=True)
        code = 2
    except click.ClickException as error:
        click.echo(f"error: {error.format_message()} (see --help)", err=True)
        code = 2
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted", err=True)
        code = 1
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    except Exception:
        traceback.print_exc()
        click.echo("error: a defect of escherlib itself; please report the lines above", err=True)
        code = 1
    sys.exit(code or 0)
