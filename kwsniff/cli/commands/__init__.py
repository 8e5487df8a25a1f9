"""One module a command: its options and its help. What it does is imported when it runs, and the module
itself when the command is asked for, so that start-up stays short however many there are."""

from __future__ import annotations

import importlib
from typing import Any

from kwsniff.cli.page import HelpPage

COMMANDS = {
    "decode": "decode",
    "report": "report",
    "live": "live",
    "pipeline": "pipeline",
    "clients": "clients",
    "slow": "slow",
    "errors": "errors",
    "groups": "groups",
    "audit": "audit",
    "auth": "auth",
    "compare": "compare",
    "upgrade-check": "upgrade_check",
    "show": "show",
    "follow": "follow",
    "extract": "extract",
    "protocol": "protocol",
    "crosscheck": "crosscheck",
    "schema": "schema",
    "completion": "completion",
}
"""Names of commands in the order of the help, and the module and the function in it that they stand for."""


def command(name: str) -> HelpPage | None:
    """The command of that name, or None."""
    if name not in COMMANDS:
        return None
    module = importlib.import_module(f"{__name__}.{COMMANDS[name]}")
    return HelpPage.of(name, getattr(module, COMMANDS[name]), module.EXAMPLES)


def loaded() -> dict[str, Any]:
    """All commands by name."""
    return {name: command(name) for name in COMMANDS}
