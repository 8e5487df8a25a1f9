"""Argument parsing and printing."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; the entry point of the `kwsniff` script."""
    from kwsniff.cli.running import run

    sys.exit(run())
