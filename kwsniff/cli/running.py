"""Runs a command and turns every way it can end into an exit code and at most one line."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import typer
import typer.main

from kwsniff.cli import problem
from kwsniff.cli.startup import OWN_PROCESS
from kwsniff.where import WhereError

# typer brings its own click or uses the installed one, by version; both call the base of their errors so.
_CLICK_ERROR: type[Exception] = next(
    base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException"
)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line `arguments` (default: this process is the command) and return the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        result = _main(given, OWN_PROCESS if arguments is None else None)
        sys.stdout.flush()
        return result if isinstance(result, int) else problem.DONE
    except BrokenPipeError:
        _forget_stdout()
        return problem.DONE
    except problem.Terminated:
        return problem.TERMINATED
    except (KeyboardInterrupt, typer.Abort):
        return problem.INTERRUPTED
    except problem.CommandError as error:
        return _said(str(error), error.exit_code)
    except WhereError as error:
        return _said(str(error), problem.USAGE)
    except _CLICK_ERROR as error:
        return _said(_usage(error), problem.USAGE)
    except OSError as error:
        return _said(_system(error), problem.USAGE)
    except MemoryError:
        return _said("out of memory", problem.USAGE)
    except Exception as error:
        if "--debug" in given:
            raise
        return _said(_fault(error), problem.INTERNAL)


def _main(arguments: list[str], state: object) -> object:
    from kwsniff.cli.root import app

    if "_KWSNIFF_COMPLETE" in os.environ:
        from kwsniff.cli.startup import make_ready

        make_ready()
    try:
        return typer.main.get_command(app).main(
            arguments, prog_name="kwsniff", standalone_mode=False, obj=state
        )
    except SystemExit as ending:
        # click turns a closed pipe into exit code 1 by itself, even when it isn't standalone.
        if isinstance(ending.__context__, BrokenPipeError):
            raise ending.__context__ from None
        raise


def _forget_stdout() -> None:
    """Point standard output at nothing, so that the flush at interpreter exit finds no closed pipe."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())
    os.close(devnull)


def _said(message: str, code: int) -> int:
    problem.said(message)
    return code


def _usage(error: Exception) -> str:
    message = str(getattr(error, "format_message", lambda: error)())
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "kwsniff"
    return f"{message.rstrip('.')} (see {command} --help)"


def _system(error: OSError) -> str:
    place = f"{error.filename}: " if error.filename is not None else ""
    return f"{place}{error.strerror or error}"


def _fault(error: Exception) -> str:
    return (
        f"a fault of kwsniff, please report it: {type(error).__name__}: {error} "
        "(kwsniff --debug ... shows the traceback)"
    )
