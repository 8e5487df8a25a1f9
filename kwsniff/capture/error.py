"""The errors of reading captures and of live sessions."""

from __future__ import annotations

import time


class CaptureError(Exception):
    """Input that cannot be read as a capture: its text is one line that names the file and says why."""


class LiveError(Exception):
    """What keeps a live session from starting or going on: one line for the user, what is missing and how to
    get it."""


# How a reading that would go on for ever is told to end.

NAP_S = 0.05
"""How late a wait may notice."""


class Stop:
    """Set once, by a signal handler, too. That must not set a `threading.Event`, whose lock may be held by
    the very thread that the signal interrupts."""

    def __init__(self) -> None:
        self._asked = False

    def set(self) -> None:
        """End soon."""
        self._asked = True

    def is_set(self) -> bool:
        """Whether it was set."""
        return self._asked

    def wait(self, seconds: float) -> None:
        """Return when it is set, or after a time."""
        until = time.monotonic() + seconds
        while not self._asked and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, NAP_S))
