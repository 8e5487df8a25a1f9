"""How commands are told what process they run in."""

from __future__ import annotations

OWN_PROCESS = object()
"""Tells a command that the process is its own, to be tuned for it (`kwsniff.tuning`) and gone afterwards."""


def untuned() -> None:
    """Leave this process as it is: others do the work, and would have its environment."""
