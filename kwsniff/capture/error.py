"""The errors of reading captures and of live sessions."""

from __future__ import annotations


class CaptureError(Exception):
    """Input that cannot be read as a capture: its text is one line that names the file and says why."""


class LiveError(Exception):
    """What keeps a live session from starting or going on: one line for the user, what is missing and how to
    get it."""
