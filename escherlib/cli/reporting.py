"""`report` and `analyze`: charts, scorecard, summary and report of a run, from its records alone."""

import click

from escherlib.cli.common import PARAMS_OPTION, REPORT_OPTIONS, ROOT_OPTION, find, use_parameters, with_options
from escherlib.errors import UserError


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


@click.command()
@click.option("--run", "run_spec", default=None, help="run (id or path); default the latest that ended")
@ROOT_OPTION
@PARAMS_OPTION
@with_options(REPORT_OPTIONS)
def report(run_spec, results_dir, params, **options):
    """Re-make charts, summary, scorecard and report of a run from its records."""
    use_parameters(params)
    return make_report(find(run_spec, results_dir), **options)


@click.command()
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
