"""Reading the inputs of a command, and what is said of it on standard error: damage, how far the capture can
be trusted, what it holds instead of Kafka, that kernels are missing, and how far reading has come.

Invariant: what passes through here is what the pipeline gave, in its order; watching never takes a row away.
"""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
import pyarrow.compute as pc

from kwsniff.analysis.trust import DAMAGE, TrustTotals, paragraph
from kwsniff.capture.error import CaptureError, Stop
from kwsniff.capture.source import segments
from kwsniff.cli import problem
from kwsniff.cli.destination import Interrupts, Stopping
from kwsniff.cli.problem import said
from kwsniff.cli.request import Request, from_pipe, patient
from kwsniff.config import Config
from kwsniff.native.code import ACT, load
from kwsniff.net.packets import CaptureTotals
from kwsniff.output.units import many
from kwsniff.run.offline import events

if TYPE_CHECKING:
    from kwsniff.count.where.period import Window

UNREAD = "capture_unreadable"


class Reading:
    """One pass over the inputs of a request, and what is to be said of them at its end. Within its block
    Ctrl-C and SIGTERM end it."""

    def __init__(self, request: Request, *, follow: bool = False) -> None:
        """`follow`: what is read may grow for ever."""
        self.request = request
        self.follow = follow
        self.damage, self.stop = Damage(), Stop()
        self.trust = Trust(
            wanted=not request.quiet,
            window=request.bounds(),
            instead=lambda: _instead(request.paths, request.config),
        )
        self.piped = from_pipe(request.paths)
        self.growing = follow or self.piped
        """What comes as it is written often ends by a signal, and is to be told then."""

    def __enter__(self) -> Self:
        self.interrupts = Stopping(self.stop) if self.growing else Interrupts()
        return self

    def __exit__(self, *ended: object) -> None:
        self.interrupts.__exit__(*ended)

    def events(
        self, config: Config, paths: Sequence[str] | None = None, *, bar: bool = True
    ) -> Iterator[pa.RecordBatch]:
        """EVENTS batches of the inputs, or those of `paths`, with a progress bar. Raises CaptureError.

        Processes are started here, not by whoever takes the first batch, which may be another thread.
        """
        paths = self.request.paths if paths is None else paths
        tell_if_interpreted(paths)
        config = patient(config) if self.piped else config
        totals, jobs, stop = self.trust.capture, self.request.jobs, self.stop
        progress = ProgressBar(wanted=bar and not self.piped)
        found = events(paths, config, totals=totals, progress=progress, jobs=jobs, stop=stop)
        return self._watched(found, progress)

    def _watched(self, found: Iterator[pa.RecordBatch], progress: ProgressBar) -> Iterator[pa.RecordBatch]:
        with progress:
            yield from self.trust.watch(found)

    def code(self) -> int:
        """The exit code, once damage has been told."""
        if self.damage:
            said(self.damage.line())
        if self.stop.is_set() and not self.follow:
            return problem.INTERRUPTED
        return problem.DAMAGED if self.damage else problem.DONE


class Damage:
    """Counts what was damaged in the events that pass, and names files that could not be read."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._first = ""
        self._unread = 0

    def watch(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same batches."""
        for batch in batches:
            self._look(batch)
            yield batch
            del batch  # before the next is made

    def _look(self, batch: pa.RecordBatch) -> None:
        if batch["code"].null_count == batch.num_rows:
            return
        hit = pc.fill_null(pc.is_in(batch["code"], pa.array(DAMAGE, pa.string())), False)
        if not pc.any(hit).as_py():
            return
        for row in batch.select(["code", "capture", "packet", "detail"]).filter(hit).to_pylist():
            if row["code"] == UNREAD:
                self._unread += 1
                said(f"{row['capture']}: {row['detail']}; it is passed over")
                continue
            self._counts[row["code"]] += 1
            self._first = self._first or _place(row)

    def __bool__(self) -> bool:
        return bool(self._counts or self._unread)

    def line(self) -> str:
        """What was damaged, in one line; files that could not be read were named before."""
        if not self._counts:
            return f"{many(self._unread, 'file')} could not be read"
        counts = ", ".join(f"{count} {code}" for code, count in sorted(self._counts.items()))
        return f"part of the input was damaged: {counts} (first: {self._first})"


def _place(row: dict[str, Any]) -> str:
    packet = "" if row["packet"] is None else f", packet {row['packet']}"
    detail = f": {row['detail']}" if row["detail"] else ""
    return f"{row['capture'] or 'input'}{packet}{detail}"


class Trust:
    """Totals of packets, for the pipeline to fill, and of events, and their telling."""

    def __init__(
        self, *, wanted: bool, window: Window | None = None, instead: Callable[[], str] = lambda: ""
    ) -> None:
        """`window`: the time that it is to be about. `instead` says what there is where Kafka is not."""
        self._instead = instead
        self._wanted = wanted
        self._window = window
        self._events = TrustTotals()
        self.capture = CaptureTotals()

    def watch(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same batches, counted."""
        for batch in batches:
            self._events.add(batch if self._window is None else self._window.seen(batch))
            yield batch
            del batch  # before the next is made

    @property
    def anomalies(self) -> dict[str, int]:
        """Anomalies by code."""
        return self._events.anomalies

    def text(self) -> str:
        """The paragraph, as one line; nothing if the user asked for quiet."""
        return self.paragraph() if self._wanted else ""

    def paragraph(self, *, whole: bool = True) -> str:
        """The same, whatever the user asked for. `whole`: the run went to the end of its input."""
        capture = self.capture if self.capture.packets else None
        empty = not self._events.connections and not self._events.calls
        instead = self._instead() if empty and self._window is None else ""
        return paragraph(self._events, capture, whole=whole, window=self._window is not None, instead=instead)

    def show(self, *, whole: bool = True) -> None:
        """Print the paragraph, fitted to the terminal if it goes to one, unless the user asked for quiet."""
        if not self._wanted:
            return
        text = self.paragraph(whole=whole)
        if sys.stderr.isatty():
            text = textwrap.fill(text, shutil.get_terminal_size().columns)
        print(text, file=sys.stderr)


BATCHES = 100
"""Looked at, at the most: some of a large capture say enough."""
SYN, ACK = 2, 16
STARTS = (
    *((word, "HTTP") for word in (b"GET ", b"POST ", b"PUT ", b"HEAD ", b"HTTP/")),
    *((b"\x16\x03", "TLS"), (b"SSH-", "SSH"), (b"PRI * HTTP/2", "HTTP/2")),
)
"""How streams of well-known protocols begin."""
SHOWN = 3


def _instead(paths: Sequence[str], config: Config) -> str:
    """The ports with most TCP packets, what their streams begin like, and what to try."""
    if from_pipe(paths):  # which cannot be read again
        return ""
    from kwsniff.analysis.stored import is_stored  # which loads what few runs need

    if any(map(is_stored, paths)):
        return ""
    packets: Counter[int] = Counter()
    kinds: dict[int, str] = {}
    servers: set[int] = set()
    try:
        for batch in islice(segments(paths, config), BATCHES):
            names = ("src_port", "dst_port", "flags", "payload")
            columns = [batch[name].to_pylist() for name in names]
            for source, target, flags, payload in zip(*columns, strict=True):
                if source is None:
                    continue
                if flags is not None and flags & (SYN | ACK) == SYN:
                    servers.add(target)
                port = target if target in servers else source if source in servers else min(source, target)
                packets[port] += 1
                kind = next((kind for start, kind in STARTS if payload and payload.startswith(start)), None)
                if kind is not None:
                    kinds.setdefault(port, kind)
    except CaptureError:
        return ""
    if not packets:
        return "It holds no TCP: was the right interface captured, with a filter that lets TCP through?"
    told = [
        f"port {port} ({f'{kinds[port]}, ' if port in kinds else ''}{many(count, 'packet')})"
        for port, count in packets.most_common(SHOWN)
    ]
    more = f" and {len(packets) - SHOWN:,} ports more" if len(packets) > SHOWN else ""
    ports = ",".join(str(port) for port, _ in packets.most_common(SHOWN) if kinds.get(port) != "SSH")
    return (
        f"Instead: TCP on {', '.join(told)}{more}. If a broker listens there, try --port {ports}. What is "
        "encrypted cannot be read, and packets have to be captured whole (tcpdump -s 0)."
    )


LARGE = 20_000_000
"""Bytes of input that compiled kernels decode in half a second, and interpreted ones in half a minute."""


def tell_if_interpreted(paths: Sequence[str]) -> None:
    """Say in one line that compiled kernels are missing, and how to get them, if that will be felt."""
    if (
        sum(map(_size, paths)) >= LARGE
        and load(ACT) is None
        and os.environ.get("KWSNIFF_KERNELS") != "interpreted"
    ):
        said(
            "the kernels are not compiled for this machine, so this takes many times as long: "
            "install kwsniff again here, or run `python -m kwsniff.engine.build` (needs numba)"
        )


def _size(path: str) -> int:
    """Bytes of a file, or of those directly in a directory; 0 for a pipe, a URL and what is missing."""
    try:
        if os.path.isdir(path):
            with os.scandir(path) as found:
                return sum(each.stat().st_size for each in found if each.is_file())
        return os.stat(path).st_size
    except OSError:
        return 0


PATIENCE = 1.0
INTERVAL = 0.1


class ProgressBar:
    """Called with bytes done and, where known, bytes in all. Says nothing unless standard error is a
    terminal, and nothing before `PATIENCE` seconds; rich is imported only then."""

    def __init__(self, *, wanted: bool = True) -> None:
        self._enabled = wanted and sys.stderr.isatty()
        self._started = self._shown = time.monotonic()
        self._bar: Any = None
        self._task: Any = None

    def __call__(self, done: int, total: int | None) -> None:
        if not self._enabled:
            return
        now = time.monotonic()
        if now - self._started < PATIENCE or now - self._shown < INTERVAL:
            return
        self._shown = now
        if self._bar is None:
            self._start()
        self._bar.update(self._task, completed=done, total=total)

    def _start(self) -> None:
        from rich import progress
        from rich.console import Console

        self._bar = progress.Progress(
            progress.BarColumn(),
            progress.DownloadColumn(binary_units=True),
            progress.TransferSpeedColumn(),
            progress.TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
            # The pipeline calls often enough; a refresh thread would draw into other output.
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._bar.start()
        self._task = self._bar.add_task("", total=None)

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
