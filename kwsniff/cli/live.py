"""The job of `kwsniff live`: calls as they happen."""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import FrameType

import pyarrow as pa

from kwsniff.analysis.findings import Thresholds
from kwsniff.capture.error import LiveError
from kwsniff.capture.keymaterial import AddedLines
from kwsniff.capture.savefile import PcapngFiles, WriterRotation, WrittenInterface
from kwsniff.cli import problem
from kwsniff.cli.destination import FORMATS, Writer, after, open_writer
from kwsniff.cli.problem import CommandError, said, suggestion
from kwsniff.cli.request import Request, chosen_columns, parsed, refuse_bodies, seconds_of
from kwsniff.cli.telling import Trust
from kwsniff.config import bytes_of
from kwsniff.count.naming import named
from kwsniff.count.topics import TopicNames, cached_names, keep_names
from kwsniff.count.where.predicate import Predicate
from kwsniff.live.collector import Keeping
from kwsniff.live.listener import ANY, Listener
from kwsniff.live.livetable import IntervalCsv, LiveFindings
from kwsniff.live.screen import Screen, possible
from kwsniff.live.session import ENDING_S, Health, LiveSink, Session, become

STDOUT, STDERR = 1, 2
LOOK_S = 0.1
"""Seconds between looks whether standard output takes something, once ENDING_S are over."""
UNREAD = b"kwsniff: standard output takes no more; what is left to tell is not told\n"
FINDINGS_SHOWN = 10
"""Findings told at the end."""


@dataclass(frozen=True, kw_only=True)
class LiveRequest(Request):
    """What `kwsniff live` can be asked."""

    interfaces: Sequence[str] = ()
    bpf: str | None = None
    promiscuous: bool = False
    buffer: str = "64M"
    user: str | None = None
    packets: str | None = None
    """File to keep packets in."""
    rotate: str | None = None
    all_packets: bool = False
    write_secrets: bool = False
    csv: str | None = None
    interval: str = "60s"
    prometheus: str | None = None
    topics: bool = False
    """Whether Prometheus is told of topics."""
    duration: str | None = None
    timeout: float = 60.0
    """Seconds."""

    @property
    def lines(self) -> bool:
        """Whether the user wants lines even on a terminal."""
        return self.form is not None or self.count is not None or self.config.full

    @property
    def seconds(self) -> float | None:
        """After how long to end. Raises CommandError."""
        return None if self.duration is None else parsed(seconds_of, self.duration, "--duration")


def live(request: LiveRequest) -> int:
    """Listen until Ctrl-C, SIGTERM, the duration, the count or the last interface's end; the exit code.

    Raises:
        CommandError: the request is wrong, or listening is not possible.
    """
    request = replace(request, config=replace(request.config, request_timeout=request.timeout))
    buffer = parsed(bytes_of, request.buffer, "--buffer")
    interval = parsed(seconds_of, request.interval, "--interval")
    _ = request.seconds
    form = _form(request.form)
    columns = chosen_columns(request, form, "csv or jsonl")
    refuse_bodies(request.checked())
    rotation = _rotation(request)
    try:
        session, heading = _session(request, rotation, buffer)
        return _LiveRun(request, session, form, columns, interval).run(heading)
    except LiveError as error:
        raise CommandError(str(error)) from None


def filter_of(ports: str | None, bpf: str | None) -> str:
    """The kernel's filter (pcap-filter(7)) for `--port` and `--filter`: both have to hold, TCP if neither."""
    parts = []
    for part in (ports or "").split(",") if ports else []:
        word = "portrange" if "-" in part else "port"
        parts.append(f"tcp {word} {part.strip()}")
    of_ports = " or ".join(parts)
    if bpf and of_ports:
        return f"({of_ports}) and ({bpf})"
    return bpf or of_ports or "tcp"


def _form(asked: str | None) -> str:
    forms = [name for name in FORMATS if name != "parquet"]
    if asked is None:
        return "text"
    if asked not in forms:
        raise CommandError(f"-f: no format {asked!r}{suggestion(asked, forms)}; there are {', '.join(forms)}")
    return asked


def _rotation(request: LiveRequest) -> WriterRotation | None:
    if request.packets is None:
        if request.rotate is not None or request.all_packets or request.write_secrets:
            raise CommandError("--rotate, --all-packets and --write-secrets go with -w")
        return None
    if request.write_secrets and request.config.keylog is None:
        raise CommandError("--write-secrets goes with --keylog")
    return None if request.rotate is None else parsed(WriterRotation.of, request.rotate, "--rotate")


def _session(request: LiveRequest, rotation: WriterRotation | None, buffer: int) -> tuple[Session, str]:
    """The session, and the line that says what it listens to."""
    bpf = filter_of(request.port, request.bpf)
    names = list(dict.fromkeys(request.interfaces)) or [ANY]
    listeners: list[Listener] = []
    try:
        for name in names:
            listeners.append(Listener(name, bpf, promiscuous=request.promiscuous, buffer_bytes=buffer))
        if request.user is not None:
            become(request.user)
            if request.config.keylog is not None and not os.access(request.config.keylog, os.R_OK):
                raise LiveError(f"--keylog: {request.user} may not read {request.config.keylog}")
        keeping = None
        if request.packets is not None:
            interfaces = [WrittenInterface(each.interface, each.linktype, bpf) for each in listeners]
            path = request.config.keylog
            secrets = AddedLines(path) if request.write_secrets and path is not None else None
            files = PcapngFiles(request.packets, interfaces, rotation, secrets)
            keeping = Keeping(files, request.all_packets)
    except BaseException:
        for listener in listeners:
            listener.close()
        raise
    buffers = ", ".join(f"{each.buffer_bytes / (1 << 20):.0f} MiB" for each in listeners)
    heading = f"listening on {', '.join(names)} ({bpf}), kernel buffer {buffers}; Ctrl-C ends"
    config = request.config
    session = Session(listeners, config, queue_bytes=config.block_bytes * 4, keeping=keeping)
    return session, heading


class _LiveRun:
    """One session and what shows it."""

    def __init__(
        self, request: LiveRequest, session: Session, form: str, columns: list[str] | None, interval: float
    ) -> None:
        """`interval`: seconds between tables of `--csv`. Raises LiveError."""
        self._request, self._session, self._predicate = request, session, request.predicate
        self._trust = Trust(wanted=not request.quiet)
        self._trust.capture = session.totals
        # Whoever comes late to a running cluster sees uuids only: the names went by before.
        self._names = TopicNames(cached_names() | request.names)
        self._known = len(self._names.names)
        self._screen: Screen | None = None
        from kwsniff.spec.load import catalog

        errors = catalog().error_kinds
        self._findings = LiveFindings(errors, Thresholds.of(request.config.thresholds))
        self._sinks: list[LiveSink] = [self._findings]
        if request.prometheus is not None:
            self._sinks.append(self._metrics(request.prometheus))
        if request.csv is not None:
            self._sinks.append(IntervalCsv(request.csv, interval, errors=errors, findings=self._findings))
        if possible() and not request.lines:
            self._screen = Screen(
                ", ".join(session.health().interfaces), session.stop, self._findings.lag, request.zone
            )
            self._sinks.append(Filtered(self._screen, self._predicate))
        else:
            self._sinks.append(self._lines(form, columns))

    def run(self, heading: str) -> int:
        """Whoever has read `heading` can end the session with a signal."""
        if self._screen is None:
            with _stopping(self._end), after(self._request.seconds, self._end):
                self._say(heading)
                with _warning(self._session.health):
                    self._session.run(self._sinks, self._through)
                return self._ended()
        self._say(heading)
        with after(self._request.seconds, self._session.stop):
            self._beside(self._screen)
        Warnings().tick(self._session.health())
        return self._ended()

    def _ended(self) -> int:
        """Keep what was learnt and tell what was found."""
        if len(self._names.names) > self._known:
            keep_names(self._names.names)
        self._trust.show()
        self._tell_findings()
        return problem.DONE

    def _end(self) -> None:
        """Stop the session; whoever does not read what it tells cannot keep it from ending."""
        self._session.stop()
        if not any(signal.getitimer(signal.ITIMER_REAL)):
            signal.setitimer(signal.ITIMER_REAL, ENDING_S, LOOK_S)

    def _tell_findings(self) -> None:
        """What somebody should look into, worst first."""
        found = [] if self._request.quiet else self._findings.found()
        for each in found[:FINDINGS_SHOWN]:
            said(f"{each.severity}: {each.sentence}")
        if len(found) > FINDINGS_SHOWN:
            said(f"+{len(found) - FINDINGS_SHOWN:,} more findings: --csv writes all of them")

    def _say(self, text: str) -> None:
        if not self._request.quiet:
            print(f"kwsniff: {text}", file=sys.stderr, flush=True)

    def _beside(self, screen: Screen) -> None:
        """Run the session in a thread while the screen has this one; raise what it raised."""
        with ThreadPoolExecutor(1, "session") as thread:
            running = thread.submit(self._session.run, self._sinks, self._through)
            running.add_done_callback(lambda _: screen.close())
            try:
                screen.run()
            finally:
                self._session.stop()
        running.result()

    def _metrics(self, address: str) -> LiveSink:
        from kwsniff.live.metrics import Metrics

        metrics = Metrics(address, topics=self._request.topics, lag=self._findings.lag)
        if not self._request.quiet:
            print(f"kwsniff: metrics on {metrics.url}", file=sys.stderr)
        return metrics

    def _lines(self, form: str, columns: list[str] | None) -> LiveSink:
        terminal = sys.stdout.isatty()
        width = os.get_terminal_size().columns if terminal else None
        writer = open_writer(
            form, sys.stdout.buffer, columns, width=width, colour=self._request.colour(terminal),
            zone=self._request.zone,
        )  # fmt: skip
        return Filtered(Lines(writer, self._request.count, self._end), self._predicate)

    def _through(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return named(self._trust.watch(batches), hold=False, learner=self._names)


@contextmanager
def _stopping(stop: Callable[[], None]) -> Iterator[None]:
    """Let Ctrl-C and SIGTERM stop the session; the second one ends it at once. SIGALRM gives up standard
    output and error if they take nothing: this process waits inside of write(2) then, which only a signal
    ends."""
    asked = False

    def arrived(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True
        stop()

    def look(number: int, frame: FrameType | None) -> None:
        given_up = [each for each in (STDOUT, STDERR) if not _takes(each)]
        for each in given_up:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, each)
            os.close(nowhere)
        if STDOUT in given_up:
            os.write(STDERR, UNREAD)

    handlers = {signal.SIGINT: arrived, signal.SIGTERM: arrived, signal.SIGALRM: look}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


def _takes(descriptor: int) -> bool:
    """Whether a file takes more at once."""
    return bool(select.select([], [descriptor], [], 0)[1])


@contextmanager
def _warning(health: Callable[[], Health]) -> Iterator[None]:
    """Warn once a second, and at the end: also while standard output takes nothing and the session waits, but
    not where this thread would, too."""
    warnings, over = Warnings(), threading.Event()

    def warn() -> None:
        while not over.wait(1.0):
            if _takes(STDERR):
                warnings.tick(health())

    thread = threading.Thread(target=warn, name="warn", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        warnings.tick(health())


class Filtered:
    """Only events for which a condition holds."""

    def __init__(self, sink: LiveSink, predicate: Predicate | None) -> None:
        self._sink, self._predicate = sink, predicate
        self.tick, self.close = sink.tick, sink.close

    def add(self, events: pa.RecordBatch) -> None:
        if self._predicate is not None:
            events = events.filter(self._predicate(events))
        if events.num_rows:
            self._sink.add(events)


class Lines:
    """A line for each event, at once."""

    def __init__(self, writer: Writer, count: int | None, stop: Callable[[], None]) -> None:
        self._writer, self._left, self._stop = writer, count, stop

    def add(self, events: pa.RecordBatch) -> None:
        if self._left is not None:
            events = events.slice(0, self._left)
            self._left -= events.num_rows
            if self._left == 0:
                self._stop()
        if events.num_rows:
            self._writer.write(events)
            sys.stdout.buffer.flush()

    def tick(self, health: Health) -> None:
        """Time alone has no line."""

    def close(self) -> None:
        self._writer.close()
        sys.stdout.buffer.flush()


class Warnings:
    """A line on standard error whenever packets were dropped since the last, or something was given up."""

    def __init__(self) -> None:
        self._told = self._troubles = 0

    def tick(self, health: Health) -> None:
        for trouble in health.troubles[self._troubles :]:
            said(trouble)
        self._troubles = len(health.troubles)
        if health.dropped == self._told:
            return
        parts = [(health.kernel_dropped, "the kernel"), (health.own_dropped, "kwsniff")]
        by = " and ".join(f"{count:,} by {who}" for count, who in parts if count)
        missing = f" here, {health.own_written:,} of them are written" if health.own_written else ""
        said(
            f"{health.dropped - self._told:,} packets dropped, so far {by}, {health.dropped_share:.1%} of "
            f"those that came; what they carried is missing{missing}"
        )
        self._told = health.dropped
