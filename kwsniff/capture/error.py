"""The one error of reading captures."""

from __future__ import annotations


class CaptureError(Exception):
    """Input that cannot be read as a capture: its text is one line that names the file and says why."""
