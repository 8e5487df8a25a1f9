"""How commands are told what process they run in, and what they find in it."""

from __future__ import annotations

import importlib
import os
import sys

# Completion in shells, which typer does; it does not list the names that it offers for this.

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


OWN_PROCESS = object()
"""Tells a command that the process is its own, to be tuned for it (`kwsniff.tuning`) and gone afterwards."""


def untuned() -> None:
    """Leave this process as it is: others do the work, and would have its environment."""


def stand_ins() -> None:
    """Open what was closed of standard input, output and error, so that no file or pipe comes to be in its
    place. The first two fail where they are used; what would be said on standard error is dropped."""
    for name, mode, access in (
        ("stdin", "r", os.O_WRONLY),
        ("stdout", "w", os.O_RDONLY),
        ("stderr", "w", os.O_WRONLY),
    ):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.open(os.devnull, access), mode))  # noqa: SIM115 - for the whole run
