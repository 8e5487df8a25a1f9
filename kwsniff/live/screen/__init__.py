"""The view of a live session that fills the terminal.

Theory of operation. Two threads meet here. The session's thread counts what it found (`statistics`) and, at
each tick, leaves a snapshot that nobody changes any more, and a note that there is one. The main thread runs
the app (`app`, by textual), which draws the newest snapshot (`lines`) as the user wants to see it (`state`).
So keys are answered at once however busy the session is, and a terminal that takes no output (Ctrl-S, a
stalled connection) never holds up the session: it just misses snapshots.

Invariant: at most one note is on its way.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, tzinfo
from typing import TYPE_CHECKING

import pyarrow as pa

from kwsniff.analysis.lag import LAG
from kwsniff.live.screen.lastminute import NEEDED, ScreenStatistics, Snapshot
from kwsniff.live.session import Health

if TYPE_CHECKING:
    from kwsniff.live.screen.app import LiveApp

__all__ = ["NEEDED", "Screen", "possible"]


def possible() -> bool:
    """Whether there is a terminal to fill: textual reads keys from standard input and draws on standard
    error; and who redirects standard output wants lines there."""
    streams = (sys.__stdin__, sys.__stdout__, sys.__stderr__)
    terminals = all(stream is not None and stream.isatty() for stream in streams)
    return terminals and os.environ.get("TERM", "") not in ("", "dumb")


class Screen:
    """A `Sink` that shows figures of the last minute on the whole terminal, while `run` runs."""

    def __init__(
        self,
        title: str,
        stop: Callable[[], None],
        lag: Callable[[], pa.Table] = LAG.empty_table,
        zone: tzinfo = UTC,
    ) -> None:
        """`title` says what is listened to; `stop` is called, in the main thread, when the user quits; `lag`
        gives rows of `kwsniff.analysis.lag.LAG`; times are shown in `zone`."""
        self._title = title
        self._stop = stop
        self._zone = zone
        self._statistics = ScreenStatistics(lag)
        self._snapshot = Snapshot()
        self._app: LiveApp | None = None
        self._lock = threading.RLock()  # a signal may come while it is held
        self._closed = False
        self._noted = False

    def add(self, events: pa.RecordBatch) -> None:
        """Take events (EVENTS, of which the columns `NEEDED` are used)."""
        self._statistics.add(events)

    def tick(self, health: Health) -> None:
        """Take note of time and health, and show what is known."""
        self._statistics.tick(health)
        self._snapshot = self._statistics.snapshot()
        self._note()

    def close(self) -> None:
        """The session is over: let `run` return, now or as soon as it is called."""
        self._closed = True
        with self._lock:
            self._noted = False
        self._note()

    def run(self) -> None:
        """Take over the terminal until the user quits or `close` was called; the terminal then is as before.

        Raises:
            Exception: whatever drawing failed with.
        """
        from kwsniff.live.screen.app import LiveApp

        no_color = os.environ.get("NO_COLOR")
        app = LiveApp(self._title, self._newest, self._stop, self._zone)
        if no_color is not None:
            os.environ["NO_COLOR"] = no_color  # which textual takes away, from those who print afterwards too
        with self._lock:
            self._app = app
        try:
            with self._ending_on_signals():
                # The mouse is left to the terminal, so that text can be selected.
                app.run(mouse=False)
        finally:
            with self._lock:
                self._app = None
        if app.failure is not None:
            raise app.failure
        if app.return_code:
            raise RuntimeError("the screen failed, see above")

    @contextlib.contextmanager
    def _ending_on_signals(self) -> Iterator[None]:
        """SIGINT, SIGTERM and SIGHUP quit, unless others have taken care of them: a killed process would
        leave the terminal as it is."""
        before = {
            number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        }
        changed = [
            number
            for number, handler in before.items()
            if handler in (signal.SIG_DFL, signal.default_int_handler)
        ]
        for number in changed:
            signal.signal(number, lambda *_: self._quit())
        try:
            yield
        finally:
            for number in changed:
                signal.signal(number, before[number])

    def _quit(self) -> None:
        self._stop()
        self.close()

    def _newest(self) -> Snapshot | None:
        """The newest snapshot, None after the end."""
        self._noted = False
        return None if self._closed else self._snapshot

    def _note(self) -> None:
        """Tell the app that there is something new, unless it has a note that it has not read."""
        with self._lock:
            if self._app is None or not self._app.is_running or self._noted:
                return
            from kwsniff.live.screen.app import Fresh

            # Before it is sent, for it may be read at once.
            self._noted = True
            try:
                self._app.post_message(Fresh())
            except RuntimeError:  # its loop has ended just now
                self._noted = False
