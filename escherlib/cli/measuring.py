"""`benchmark`: from what was asked for to a run, its notebooks and its report."""

import click

from escherlib.cli.common import (
    GEOMETRY_OPTIONS,
    MODELS_OPTION,
    OVERRIDES,
    PARAMS_OPTION,
    REPORT_OPTIONS,
    ROOT_OPTION,
    find,
    report_options,
    use_parameters,
    with_options,
)
from escherlib.cli.reporting import check_report_options, make_report
from escherlib.errors import UserError

LONG_RUN, LONG_RUN_BESIDE_S = "07_sustained", 900.0  # what settling, recovery and imports may take beside the held minutes


@click.command()
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
@click.option("--minutes", type=click.FloatRange(min=0), default=None, help="minutes the sustained run holds (0: none)")
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
        "minutes": options.pop("minutes"),
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
    if chosen["minutes"] is not None:
        hold_for(chosen["minutes"], suite, resolved, deadlines)
    manifest = directory.manifest_for(
        directory.new_run_id(workload.name, binding["device"]), suite.name, workload, binding, resolved,
        deadlines_s=deadlines, **({"reference_model": chosen["model"]} if chosen["model"] else {}),
    )  # fmt: skip
    return directory.create(root, manifest, binding["env"]), suite


def hold_for(minutes, suite, resolved, deadlines):
    """Let the sustained run of a suite hold for `minutes`, its deadline with it."""
    if LONG_RUN not in resolved:
        raise UserError(f"MINUTES={minutes:g}: suite {suite.name} has no sustained run; expected standard, full or smoke")
    resolved[LONG_RUN]["minutes"] = minutes
    deadlines[LONG_RUN] = max(deadlines[LONG_RUN], 60 * minutes + LONG_RUN_BESIDE_S)


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
    held = manifest["parameters"].get(LONG_RUN, {}).get("minutes")
    if chosen["minutes"] is not None and chosen["minutes"] != held:
        raise UserError(f"MINUTES={chosen['minutes']:g}: run {path.name} was begun with {held}; leave MINUTES out or start a new run")
    changed = [name for name, value in chosen["overrides"].items() if value is not None]
    if changed:
        raise UserError(f"{changed[0].upper()}: a run keeps the workload it began with; start a new run for another")
    asked = chosen["device"] if chosen["device"] != "auto" else manifest["device"].get("asked", "auto")
    binding = bind_in_child(asked, numactl_prefix(numactl))
    moved = directory.differences(manifest, binding)
    if moved:
        raise UserError(f"run {path.name} cannot go on here, since this moved: {'; '.join(moved)}; start a new run")
    return path, parameters.load_suite(manifest["suite"])
