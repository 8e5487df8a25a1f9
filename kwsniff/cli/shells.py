"""Completion in shells, which typer does; it does not list the names that it offers for this."""

from __future__ import annotations

import importlib

COMPLETE = "_KWSNIFF_COMPLETE"
"""Set by the script of `kwsniff completion` where a shell asks what comes next."""
SHELLS = ("bash", "zsh", "fish")


def make_ready() -> None:
    """Let the command line answer what a shell asks."""
    importlib.import_module("typer.completion").completion_init()


def script(shell: str) -> str:
    """What a shell has to read to complete `kwsniff`."""
    made = importlib.import_module("typer.completion").get_completion_script
    return str(made(prog_name="kwsniff", complete_var=COMPLETE, shell=shell))
