"""Argument parsing and printing."""

from __future__ import annotations


def main() -> None:
    """Run the command line; the entry point of the `kwsniff` script."""
    from kwsniff.cli.app import app

    app()
