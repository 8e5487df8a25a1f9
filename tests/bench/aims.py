"""What is measured and what is aimed at: each section of the table makes its lines."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.bench import crowd, pcapfile
from tests.bench.measure import Command, Meter, Run

CLUSTER = ("cluster-small", "cluster-sasl", "cluster-bulk", "cluster-java")
MOCK = ("chatty", "bulk", "wide")
LOSSES = ("midstream", "lost-1", "lost-20")
SHORT = ("cluster-small-200k", "cluster-sasl-200k", "cluster-bulk-200k")
MILLION = 1_000_000
MEMORY = 350_000_000  # bytes
FIELDS = ("frame.time_epoch", "tcp.stream", *(
    f"kafka.{name}" for name in ("api_key", "api_version", "correlation_id", "error")
))  # fmt: skip
COLUMNS = "time,connection,api,api_version,correlation_id,error"


class Capture:
    """A recorded capture, the brokers' ports in it, and what is run on it: kwsniff, and what one would do
    without it."""

    def __init__(self, meter: Meter, path: Path | str, ports: list[int] | None = None) -> None:
        self.path = path if isinstance(path, Path) else meter.folder / f"{path}.pcap"
        self.ports: list[int] = ports or json.loads(self.path.with_suffix(".json").read_text())["ports"]
        self._scratch = meter.scratch

    def _tshark(self, *how: str, out: Path = Path("/dev/null")) -> str:
        ports = " ".join(f"-d tcp.port=={port},kafka" for port in self.ports)
        return f"tshark -n -r {shlex.quote(str(self.path))} {ports} -Y kafka {shlex.join(how)} > {out}"

    def tshark_fields(self, then: str = "", **more: Path) -> Command:
        """Six fields of each message."""
        fields = [part for name in FIELDS for part in ("-e", name)]
        return ("sh", "-c", self._tshark("-T", "fields", *fields, **more) + then)

    def tshark_json(self) -> Command:
        """All fields of each message."""
        return ("sh", "-c", self._tshark("-T", "json"))

    def tshark_pandas(self) -> Command:
        """Six fields, and statistics of them."""
        table = self._scratch / "tshark.tsv"
        script = Path(__file__).with_name("pandas_report.py")
        return self.tshark_fields(f" && {shlex.join([sys.executable, str(script), str(table)])}", out=table)

    def report(self, *options: str) -> Command:
        """The arguments of kwsniff."""
        return ("report", str(self.path), "-q", "--port", ",".join(map(str, self.ports)), *options)

    def decode(self, form: str, *options: str) -> Command:
        out = str(self._scratch / f"all.{form}")
        return ("decode", *self.report("-f", form, "-o", out, *options)[1:])

    def calls(self, *options: str) -> Command:
        """Six columns of each call."""
        return self.decode("csv", "--columns", COLUMNS, *options)


@dataclass(frozen=True)
class Line:
    """Seconds of the rival, of kwsniff's first run and of later ones; what counts, and its aim."""

    what: str
    rival: str
    first: str
    again: str
    counts: str
    aim: str
    reached: bool


Runs = tuple[Run | None, Run | None, Run | None]


def line(what: str, aim: str, make: Callable[[], tuple[Runs, str, bool]]) -> Line:
    """The line of runs, what counts and whether that is enough, or that kwsniff failed."""
    try:
        runs, counts, reached = make()
    except RuntimeError as failed:
        return Line(what, "", "", "", str(failed)[-60:].replace("|", " "), aim, False)
    seconds = (f"{'' if run.whole else '> '}{run.seconds:.2f}" if run else "" for run in runs)
    return Line(what, *seconds, counts, aim, reached)


def faster(meter: Meter, what: str, rival: Command, ours: Command, aim: float) -> Line:
    """kwsniff's first run beside its rival: at least `aim` times as fast."""

    def make() -> tuple[Runs, str, bool]:
        slow, first, again = meter.rival(*rival), meter.first(*ours), meter.again(*ours)
        ratio = slow.seconds / first.seconds
        more = "" if slow.whole else "> "
        counts = f"{more}{ratio:.1f}×, later {more}{slow.seconds / again.seconds:.1f}×"
        return (slow, first, again), counts, ratio >= aim

    return line(what, f"≥ {aim:g}×", make)


def six_columns(meter: Meter) -> Iterator[Line]:
    """A row for each call, six columns, beside six fields of tshark."""
    lossy = [f"{name}-{loss}" for loss in LOSSES for name in CLUSTER]
    for name in (*CLUSTER, *MOCK, "chatty-damaged", *lossy, *SHORT):
        capture = Capture(meter, name)
        aim = 15 if pcapfile.count(capture.path) >= 0.9 * MILLION else 8
        yield faster(meter, name, capture.tshark_fields(), capture.calls(), aim)


def every_column(meter: Meter) -> Iterator[Line]:
    """Every column of each call, beside six fields of tshark."""
    for name in ("cluster-small", "chatty"):
        capture = Capture(meter, name)
        for form in ("csv", "parquet"):
            yield faster(meter, f"{name}, {form}", capture.tshark_fields(), capture.decode(form), 10)


def reports(meter: Meter) -> Iterator[Line]:
    """`report`, beside six fields of tshark and pandas."""
    for name in ("cluster-small", "chatty"):
        capture = Capture(meter, name)
        yield faster(meter, name, capture.tshark_pandas(), capture.report(), 12)


def bodies(meter: Meter) -> Iterator[Line]:
    """`decode --full`, beside `tshark -T json`."""
    for name in ("cluster-small-200k", "cluster-bulk-200k"):
        capture = Capture(meter, name)
        yield faster(meter, name, capture.tshark_json(), capture.decode("jsonl", "--full"), 5)


PLAIN = {
    **{f"{name}-{loss}": name for name in CLUSTER for loss in ("lost-1", "lost-20")},
    "chatty-damaged": "chatty",
    "cluster-sasl": "cluster-small",
    "cluster-small": "chatty",  # thousands in flight beside a few
}


def harder(meter: Meter) -> Iterator[Line]:
    """Lost packets, SASL and deep pipelines: time for each packet, beside the plain workload."""
    for name, plain in PLAIN.items():
        yield line(f"{name} / {plain}", "≤ 1.5×", partial(_harder, meter, name, plain))


def _harder(meter: Meter, *names: str) -> tuple[Runs, str, bool]:
    captures = [Capture(meter, name) for name in names]
    runs = [meter.again(*capture.calls()) for capture in captures]
    own, plain = (run.seconds / pcapfile.count(each.path) for run, each in zip(runs, captures, strict=True))
    return (runs[1], None, runs[0]), f"{own / plain:.2f}×", own <= 1.5 * plain


def small_files(meter: Meter) -> Iterator[Line]:
    """From pressing return to the last row."""
    for name, aim in (("cluster-small-5mb", 0.6), ("cluster-small-100kb", 0.4)):
        yield line(name, f"≤ {aim} s", partial(_small_file, meter, name, aim))


def _small_file(meter: Meter, name: str, aim: float) -> tuple[Runs, str, bool]:
    arguments = Capture(meter, name).calls()
    first, again = meter.first(*arguments), meter.again(*arguments)
    return (None, first, again), f"{first.seconds:.2f} s", first.seconds <= aim


def cores(meter: Meter) -> Iterator[Line]:
    """`-j 2` and `-j 4`, beside `-j 1`."""
    for name in ("cluster-small", "cluster-bulk"):
        capture = Capture(meter, name)
        outputs: dict[str, Callable[..., Command]] = {
            "six columns": capture.calls,
            "csv": partial(capture.decode, "csv"),
            "parquet": partial(capture.decode, "parquet"),
            "report": capture.report,
        }
        for form, output in outputs.items():
            for jobs, aim in ((2, 1.7), (4, 3.0)):
                if jobs <= (os.cpu_count() or 1):
                    commands = output("-j", "1"), output("-j", str(jobs))
                    make = partial(_cores, meter, commands, aim)
                    yield line(f"{name}, {form}, -j {jobs}", f"≥ {aim}×", make)


def _cores(meter: Meter, commands: tuple[Command, Command], aim: float) -> tuple[Runs, str, bool]:
    one, more = (meter.again(*command) for command in commands)
    ratio = one.seconds / more.seconds
    return (one, None, more), f"{ratio:.2f}×", ratio >= aim


def crowds(meter: Meter) -> Iterator[Line]:
    """A million packets of more and more connections: time for each packet, beside that of 100."""
    source = Capture(meter, "chatty")
    costs: list[float] = []

    def make(path: Path, packets: int) -> tuple[Runs, str, bool]:
        run = meter.again(*Capture(meter, path, source.ports).calls())
        costs.append(run.seconds / packets)
        counts = f"{costs[-1] * 1e6:.2f} µs, {costs[-1] / costs[0]:.2f}×"
        return (None, None, run), counts, costs[-1] <= 1.5 * costs[0]

    for size, made in crowd.make(source.path, meter.scratch, source.ports).items():
        yield line(f"{size:,} connections", "≤ 1.5×", partial(make, *made))


def memory(meter: Meter) -> Iterator[Line]:
    """The largest process of all that was measured before, with `--full` and without."""
    runs = {arguments: run for arguments, run in meter.ours.items() if "--full" not in arguments}
    for what, chosen in (("calls and reports", runs), ("all", meter.ours)):
        if chosen:
            arguments, run = max(chosen.items(), key=lambda each: each[1].peak)
            counts = f"{run.peak / 1e6:.0f} MB ({arguments[0]} {Path(arguments[1]).name})"
            yield Line(what, "", "", f"{run.seconds:.2f}", counts, "≤ 350 MB", run.peak <= MEMORY)


SECTIONS: dict[str, Callable[[Meter], Iterator[Line]]] = {
    "six-columns": six_columns,
    "every-column": every_column,
    "report": reports,
    "full": bodies,
    "harder": harder,
    "small-files": small_files,
    "cores": cores,
    "crowds": crowds,
    "memory": memory,
}
