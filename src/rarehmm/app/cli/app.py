"""The parts that all commands share: the application, its console, its error messages and exit codes.

0: success, whether or not the model fits the series.  1: an error in data, settings or files, reported in one line.
2: wrong usage.  3: finished, but a check of the posterior failed and the results are unreliable.  130: interrupted.
"""

import sys
import time
import traceback
from importlib.metadata import version
from typing import Annotated, Any

import typer
from rich.console import Console

UNRELIABLE, INTERRUPTED = 3, 130
USAGE: Any = typer.BadParameter.__mro__[2]  # ClickException of the click version that typer uses
app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Bayesian hidden Markov models for long series with rare regimes.",
    epilog="Exit codes: 0 success, 1 error, 2 wrong usage, 3 finished but results are unreliable, 130 interrupted.",
)
console = Console()
errors = Console(stderr=True)


def print_version(wanted: bool) -> None:
    """Print the version of rarehmm, and exit."""
    if wanted:
        print(f"rarehmm {version('rarehmm')}")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", help="Show the full traceback of an error.")] = False,
    _: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=print_version, is_eager=True)
    ] = False,
) -> None:
    context.obj = {"debug": debug}


def main() -> None:
    """Run the command given by the program's arguments, and exit with its code; errors are printed in one line."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run a command and return its exit code."""
    try:
        command: Any = typer.main.get_command(app)
        hide_types_of_flags(command)
        code: Any = command.main(arguments, prog_name="rarehmm", standalone_mode=False)
    except typer.Exit as exited:
        return int(exited.exit_code)
    except (typer.Abort, KeyboardInterrupt):
        errors.print("interrupted")
        return INTERRUPTED
    except USAGE as error:
        error.show()
        return int(error.exit_code)
    except Exception as error:
        if "--debug" in arguments:
            traceback.print_exc()
        message = " ".join(str(error).split()) or type(error).__name__
        errors.print(f"[bold red]error[/]: {rich_escape(message)}", soft_wrap=True)
        return 1
    return code if isinstance(code, int) else 0


def hide_types_of_flags(command: Any) -> None:
    """Leave out of the help of a command and of its subcommands that a flag, which takes no value, is a bool."""
    for parameter in command.get_params(typer.Context(command)):
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
    for other in getattr(command, "commands", {}).values():
        hide_types_of_flags(other)


def rich_escape(message: str) -> str:
    """Escape square brackets, which rich would read as markup."""
    return message.replace("[", "\\[")


def print_step(message: str, since: float) -> float:
    """Print a finished step with the time it took, and return the current time."""
    now = time.perf_counter()
    console.print(f"[dim]{now - since:6.2f} s[/]  {message}")
    return now
