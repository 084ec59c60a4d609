"""`python -m escherlib <command>`: the sequence notebooks → score → report, and the small commands around it.

Exit codes: 0 ok · 1 a gating or validation FAIL, or a family that failed · 2 bad input (one line on stderr).
Nothing here imports torch, altair or pandas before it is needed: help, list and identify answer at once.
"""

import os
import sys
import traceback

import click

from escherlib import __version__
from escherlib.cli import measuring, reporting, small
from escherlib.errors import UserError


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="escherlib")
def commands():
    """Escher microbenchmarks: how close is this machine to its limits on escher_14b_480p?"""


for command in (
    measuring.benchmark, reporting.report, reporting.analyze, small.list_command, small.models, small.workload,
    small.identify, small.parse, small.doctor,
):  # fmt: skip
    commands.add_command(command)


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
