"""The commands: their options and their help. What one does is imported when it runs, and its module when it
is asked for, so that start-up stays short however many there are."""

from __future__ import annotations

import importlib
from typing import Any

from kwsniff.cli.page import HelpPage

EXAMPLES = (
    "kwsniff report trace.pcapng",
    "kwsniff slow trace.pcapng --where 'api == \"Produce\" and latency > 100ms'",
    "tcpdump -i any -U -w - port 9092 | kwsniff decode -",
)
"""What the help of all commands begins with."""

GROUPS = {
    "Every day": ("report", "decode", "live", "pipeline"),
    "Questions": ("slow", "errors", "clients", "groups", "compare", "audit", "auth", "upgrade-check"),
    "Single calls": ("show", "follow", "extract"),
    "Reference": ("schema", "protocol", "crosscheck", "completion"),
}
"""Names of commands by group, in the order of the help."""

MODULES = {"Questions": "questions", "Single calls": "single", "Reference": "about"}
"""Those of the groups of small commands; each other command has one of its own name."""
COMMANDS = tuple(name for names in GROUPS.values() for name in names)


def command(name: str) -> HelpPage | None:
    """The command of that name, or None."""
    if name not in COMMANDS:
        return None
    python = name.replace("-", "_")
    group = next(group for group, names in GROUPS.items() if name in names)
    module = importlib.import_module(f"{__name__}.{MODULES.get(group, python)}")
    return HelpPage.of(name, getattr(module, python), module.EXAMPLES[python])


def loaded() -> dict[str, Any]:
    """All commands by name."""
    return {name: command(name) for name in COMMANDS}
