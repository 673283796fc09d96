"""`nanoserve-bench`: the commands under one roof, and one way to end badly.

Whatever the benchmark raises on purpose ends as a message without a traceback, and so does what the
file system refuses.
"""

from __future__ import annotations

import sys

import click

from nanoserve_bench.commands.calibrate import calibrate
from nanoserve_bench.commands.check import check
from nanoserve_bench.commands.perf import perf
from nanoserve_bench.commands.rules import explain, rules
from nanoserve_bench.commands.soak import soak
from nanoserve_bench.commands.sweep import sweep
from nanoserve_bench.commands.systems import systems
from nanoserve_bench.errors import BenchError, WorkerError

EXIT_NOT_STARTED, EXIT_WORKER, EXIT_FILES, EXIT_INTERRUPTED = 2, 3, 3, 130


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="nanoserve-bench")
def cli() -> None:
    """Measure LLM engines against each other, and print only what is sound."""


for command in (sweep, check, rules, explain, systems, perf, soak, calibrate):
    cli.add_command(command)


def main() -> None:
    """Run the command line."""
    try:
        code = cli.main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except WorkerError as error:
        click.echo(f"{error}\nWhat is complete is kept: the same command goes on.", err=True)
        code = EXIT_WORKER
    except BenchError as error:
        click.echo(str(error), err=True)
        code = EXIT_NOT_STARTED
    except OSError as error:  # a full disk, a folder that was taken away: nobody's bug
        click.echo(f"{error}\nWhat is complete is kept: the same command goes on.", err=True)
        code = EXIT_FILES
    except (click.Abort, KeyboardInterrupt):
        click.echo("Interrupted. The same command goes on where it stopped.", err=True)
        code = EXIT_INTERRUPTED
    sys.exit(code if isinstance(code, int) else 0)
