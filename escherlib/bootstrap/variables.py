"""The one table of targets and variables: `make help`, the README's table and the forwarding come from it."""

import difflib
import re
import textwrap
from dataclasses import dataclass

from escherlib.bootstrap.console import SetupError

TARGETS = {
    "benchmark": "set up, detect the device, measure, write the report",
    "report": "re-make charts, scorecard, summary and report of a run from its records",
    "analyze": "re-execute a run's notebooks on its records, never measuring; then the report",
    "models": "reference models: geometry, hub id, licence, and the workload of each",
    "list": "test cases, suites, workloads, device profiles, runs",
    "setup": "make or repair the environment, nothing else",
    "doctor": "does the software stack fit the device? which PDF engine, which optional backends?",
    "lab": "JupyterLab on 127.0.0.1, opened on the notebooks",
    "test": "set up, run all tests",
    "clean": "remove caches and left-over temporary files; keeps .venv*, executed runs and records",
    "help": "this page",
}
SETTING_UP = ("setup", "benchmark", "report", "analyze", "models", "list", "doctor", "lab", "test")
REPORTING = ("benchmark", "report", "analyze")
YES, NO = ("1", "yes", "true", "on"), ("0", "no", "false", "off")
TITLES = ("group", "variable", "CLI flag")
MAKES_OWN = {"SHELL", "MAKE", "MAKEFLAGS", "MAKEOVERRIDES", "CURDIR"}


@dataclass(frozen=True)
class Variable:
    """One make variable. style: "value", "switch" (1 sets the flag) or "anti" (0 sets it)."""

    name: str
    group: str
    values: str
    commands: tuple
    style: str = "value"
    make_only: bool = False
    may_be_empty: bool = False

    @property
    def flag(self):
        """`--name-with-dashes`, `--no-name` for a switch that is on by default, None for make alone."""
        if self.make_only:
            return None
        return ("--no-" if self.style == "anti" else "--") + self.name.lower().replace("_", "-")


def _of(group, commands, **common):
    return lambda name, values, **own: Variable(
        name, group, values, own.pop("commands", commands), **common, **own
    )


_what = _of("what", ("benchmark",))
_run = _of("run", ("benchmark",))
_how = _of("how", ("benchmark",))
_report = _of("report", REPORTING)
_setup = _of("set-up", SETTING_UP, make_only=True)

VARIABLES = (
    _what("DEVICE", "auto (default), cpu, cuda, rocm, a profile id, a family (h100) or part of a name",
          commands=("benchmark", "setup", "doctor")),
    _what("SUITE", "smoke, headline, standard (default), full"),
    _what("TESTCASE", "comma list of test cases; `make list` shows them"),
    _what("ALL", "1: one run for every workload", style="switch"),
    _what("WORKLOAD", "a workload name; `make list` shows them"),
    _what("DEPTH", "blocks of the model"),
    _what("FRAMES", "latent frames a chunk"),
    _what("WINDOW", "latent frames in the KV window"),
    _what("TEXT_TOKENS", "text tokens"),
    _what("REFERENCE_MODEL", "model id whose workload is run; `make models` shows them"),
    _what("MODELS", "file that replaces parameters/models.yaml", commands=("benchmark", "models")),
    _what("PARAMS", "folder whose files override parameters/", commands=(*REPORTING, "models", "list", "setup")),
    _run("RUN", "run id or path; benchmark goes on with it, report and analyze take the latest",
         commands=REPORTING),
    _run("FORCE", "1: measure again what is already measured; the old records stay", style="switch"),
    _run("ITERATIONS", "whole passes with fresh kernels"),
    _run("RESULTS_DIR", "folder that holds the runs (default executed/)", commands=(*REPORTING, "list")),
    _how("STAT", "on (default), off: telemetry beside the measurements"),
    _how("STAT_INTERVAL", "seconds between telemetry samples"),
    _how("MINUTES", "minutes the sustained run holds (0: none)"),
    _how("PREPARE_SYS", "1: steady the system first (needs root; each setting is told)", style="switch"),
    _how("NUMACTL", 'numactl words for what is measured, such as "--localalloc"', may_be_empty=True),
    _report("FORMAT", "comma list of md, html, pdf; or all (default)"),
    _report("TARGET", "profile to present the run as: id, family or part of a name"),
    _report("MARKING", "text on every page, such as a confidentiality notice", may_be_empty=True),
    _report("REPORT_CONFIG", "file that replaces parameters/report.yaml"),
    _report("EMBED", "0: charts as files beside the HTML", style="anti"),
    _setup("TORCH", "auto (default), keep, pypi, cpu, cuNNN, rocmN.N: which build of torch"),
    _setup("TORCH_INDEX_URL", "package index, or folder of wheels, that torch comes from"),
    _setup("VENV", "folder of the environment (default .venv); none: use the active Python, install nothing"),
    _setup("EXTRAS", "comma list of optional backends to install: fa4 (flash-attn-4; Hopper, Blackwell)",
           commands=("benchmark", "setup")),
    _setup("PYTHON", "interpreter to make the environment with (default python3)", commands=tuple(TARGETS)),
)  # fmt: skip
BY_NAME = {variable.name: variable for variable in VARIABLES}


def overridden(text):
    """Names of make's command line, from $(MAKEOVERRIDES): `A=1 B=two\\ words` → {A, B}."""
    words = re.split(r"(?<!\\)\s+", text.strip())
    return {re.sub(r"[:+?!]*$", "", word.split("=", 1)[0]) for word in words if "=" in word}


def check_names(names, goals):
    """Refuse variables that do not exist, or that no goal of this call uses."""
    for name in sorted(names - MAKES_OWN):
        if name not in BY_NAME:
            near = difflib.get_close_matches(name.upper(), BY_NAME, n=1)
            hint = f"did you mean {near[0]}?" if near else "`make help` lists them"
            raise SetupError(f"{name}: no such variable; {hint}")
        uses = BY_NAME[name].commands
        if goals and not set(goals) & set(uses):
            raise SetupError(f"{name}: `make {goals[0]}` does not use it; it belongs to {', '.join(uses)}")


def read_given(command, environ, names):
    """Values of a command's variables: name → text. `names`: make's command line, where empty is an error."""
    given = {v.name: environ[v.name] for v in VARIABLES if command in v.commands and v.name in environ}
    for name, value in list(given.items()):
        if value.strip():
            continue
        if name in names and not BY_NAME[name].may_be_empty:
            raise SetupError(
                f"{name}=: empty; give it a value or leave it out (`make help` shows the values)"
            )
        del given[name]
    return given


def forward(command, given):
    """CLI arguments for the variables that were given: `--name=value`, `--force`, `--no-embed`."""
    arguments = []
    for name, value in given.items():
        variable = BY_NAME[name]
        if variable.flag is None or command not in variable.commands:
            continue
        if variable.style == "value":
            arguments.append(f"{variable.flag}={value}")
        elif _is_on(name, value) == (variable.style == "switch"):
            arguments.append(variable.flag)
    return arguments


def _is_on(name, value):
    word = value.strip().lower()
    if word not in YES + NO:
        raise SetupError(f"{name}={value}: expected 1 or 0")
    return word in YES


def help_text(width=110):
    """What `make help` prints."""
    lines = ["make TARGET [NAME=value …]", ""]
    lines += [f"  {name:<12}{text}" for name, text in TARGETS.items()]
    rows = [(v.group, v.name, v.flag or "(make alone)", v.values) for v in VARIABLES]
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    lines += [
        "",
        "`make benchmark NAME=value` is `python -m escherlib benchmark --name value`; likewise the others:",
        "",
    ]
    lines.append("  " + "  ".join(t.ljust(w) for t, w in zip(TITLES, widths, strict=True)) + "  values")
    before = None
    for group, *cells in rows:
        shown = ["" if group == before else group, *cells[:2]]
        head = "  " + "  ".join(text.ljust(w) for text, w in zip(shown, widths, strict=True)) + "  "
        lines += _wrapped(head, cells[2], width)
        before = group
    return "\n".join(lines)


def _wrapped(head, text, width):
    indents = {"initial_indent": head, "subsequent_indent": " " * len(head)}
    return textwrap.wrap(text, max(width, len(head) + 30), break_on_hyphens=False, **indents)


def help_markdown():
    """The same table for the README."""
    lines = ["| group | variable | values | CLI flag |", "|---|---|---|---|"]
    before = None
    for v in VARIABLES:
        group = "" if v.group == before else v.group
        flag = f"`{v.flag}`" if v.flag else "make alone"
        lines.append(f"| {group} | {v.name} | {v.values} | {flag} |")
        before = v.group
    return "\n".join(lines)
