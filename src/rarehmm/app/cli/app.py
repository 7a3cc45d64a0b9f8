"""What all commands share: the application, its console, its errors and exit codes.

0: done.  1: an error in data, settings or files, in one line.  2: wrong usage.  3: done, and the posterior is not to be
trusted.  130: interrupted.
"""

import sys
import time
import traceback
from typing import Annotated, Any

import typer
from rich.console import Console

UNTRUSTED, INTERRUPTED = 3, 130
USAGE: Any = typer.BadParameter.__mro__[2]  # ClickException, of whichever click typer brings
app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Bayesian hidden Markov models with rare states.",
    epilog="Exit codes: 0 done, 1 error, 2 wrong usage, 3 done but not to be trusted, 130 interrupted.",
)
console = Console()
errors = Console(stderr=True)


@app.callback()
def options(
    context: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error comes from.")] = False,
) -> None:
    context.obj = {"debug": debug}


def main() -> None:
    """Run a command; an error is one line, and nothing else."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """The exit code of a command."""
    try:
        code: Any = typer.main.get_command(app).main(arguments, prog_name="rarehmm", standalone_mode=False)
    except typer.Exit as left:
        return int(left.exit_code)
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


def rich_escape(message: str) -> str:
    return message.replace("[", "\\[")


def say(what: str, since: float) -> float:
    """Report a step with the time it took; returns the time now."""
    now = time.perf_counter()
    console.print(f"[dim]{now - since:6.2f} s[/]  {what}")
    return now
