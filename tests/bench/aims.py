"""What is measured and what is aimed at: each section of the table makes its lines."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import crowd
import pcapfile
from measure import Run
from meter import Command, Meter

CLUSTER = ("cluster-small", "cluster-sasl", "cluster-bulk", "cluster-java")
MOCK = ("chatty", "bulk", "wide", "damaged")
LOSSES = ("midstream", "lost-1", "lost-20")
SHORT = ("cluster-small-200k", "cluster-sasl-200k", "cluster-bulk-200k")
MILLION = 1_000_000
MEMORY = 350_000_000  # bytes


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


def seconds(run: Run) -> str:
    return f"{'' if run.whole else '> '}{run.seconds:.2f}"


def attempt(what: str, aim: str, make: Callable[[], Line]) -> Line:
    """The line, or that kwsniff failed."""
    try:
        return make()
    except RuntimeError as failed:
        return Line(what, "", "", "", str(failed)[-60:].replace("|", " "), aim, False)


def faster(meter: Meter, what: str, rival: Command, ours: Command, aim: float) -> Line:
    """kwsniff's first run beside its rival: at least `aim` times as fast."""

    def make() -> Line:
        slow, first, again = meter.rival(*rival), meter.first(*ours), meter.again(*ours)
        ratio = slow.seconds / first.seconds
        more = "" if slow.whole else "> "
        counts = f"{more}{ratio:.1f}×, later {more}{slow.seconds / again.seconds:.1f}×"
        reached = f"≥ {aim:g}×"
        return Line(what, seconds(slow), seconds(first), seconds(again), counts, reached, ratio >= aim)

    return attempt(what, f"≥ {aim:g}×", make)


def six_columns(meter: Meter) -> Iterator[Line]:
    """A row for each call, six columns, beside six fields of tshark."""
    whole = [*CLUSTER, *MOCK]
    lossy = [f"{name}-{loss}" for loss in LOSSES for name in CLUSTER]
    for name in (*whole, *lossy, *SHORT):
        capture = meter.capture(name)
        aim = 15 if pcapfile.count(capture.path) >= 0.9 * MILLION else 8
        rival, ours = capture.tshark_fields(), capture.calls(meter.scratch)
        yield faster(meter, name, tuple(rival), tuple(ours), aim)


def every_column(meter: Meter) -> Iterator[Line]:
    """Every column of each call, beside six fields of tshark."""
    for name in ("cluster-small", "chatty"):
        capture = meter.capture(name)
        for form in ("csv", "parquet"):
            out = str(meter.scratch / f"all.{form}")
            ours = capture.kwsniff("decode", "-f", form, "-o", out)
            yield faster(meter, f"{name}, {form}", tuple(capture.tshark_fields()), tuple(ours), 10)


def reports(meter: Meter) -> Iterator[Line]:
    """`report`, beside six fields of tshark and pandas."""
    for name in ("cluster-small", "chatty"):
        capture = meter.capture(name)
        rival = tuple(capture.tshark_pandas(meter.scratch))
        yield faster(meter, name, rival, tuple(capture.kwsniff("report")), 12)


def bodies(meter: Meter) -> Iterator[Line]:
    """`decode --full`, beside `tshark -T json`."""
    for name in ("cluster-small-200k", "cluster-bulk-200k"):
        capture = meter.capture(name)
        out = str(meter.scratch / "full.jsonl")
        ours = capture.kwsniff("decode", "--full", "-f", "jsonl", "-o", out)
        yield faster(meter, name, tuple(capture.tshark_json()), tuple(ours), 5)


PLAIN = {
    **{f"{name}-{loss}": name for name in CLUSTER for loss in ("lost-1", "lost-20")},
    "damaged": "chatty",
    "cluster-sasl": "cluster-small",
    "cluster-small": "chatty",  # thousands in flight beside a few
}


def harder(meter: Meter) -> Iterator[Line]:
    """Lost packets, SASL and deep pipelines: time for each packet, beside the plain workload."""
    for name, plain in PLAIN.items():
        yield attempt(
            f"{name} / {plain}", "≤ 1.5×", lambda name=name, plain=plain: _harder(meter, name, plain)
        )


def _harder(meter: Meter, name: str, plain: str) -> Line:
    runs, costs = [], []
    for each in (name, plain):
        capture = meter.capture(each)
        runs.append(meter.again(*capture.calls(meter.scratch)))
        costs.append(runs[-1].seconds / pcapfile.count(capture.path))
    ratio = costs[0] / costs[1]
    return Line(
        f"{name} / {plain}", seconds(runs[1]), "", seconds(runs[0]), f"{ratio:.2f}×", "≤ 1.5×", ratio <= 1.5
    )


def small_files(meter: Meter) -> Iterator[Line]:
    """From pressing return to the last row."""
    for name, aim in (("cluster-small-5mb", 0.6), ("cluster-small-100kb", 0.4)):
        yield attempt(name, f"≤ {aim} s", lambda name=name, aim=aim: _small_file(meter, name, aim))


def _small_file(meter: Meter, name: str, aim: float) -> Line:
    arguments = meter.capture(name).calls(meter.scratch)
    first, again = meter.first(*arguments), meter.again(*arguments)
    return Line(
        name, "", seconds(first), seconds(again), f"{first.seconds:.2f} s", f"≤ {aim} s", first.seconds <= aim
    )


def cores(meter: Meter) -> Iterator[Line]:
    """`-j 2` and `-j 4`, beside `-j 1`."""
    for name in ("cluster-small", "cluster-bulk"):
        for form in ("six columns", "csv", "parquet", "report"):
            for jobs, aim in ((2, 1.7), (4, 3.0)):
                if jobs <= (os.cpu_count() or 1):
                    what = f"{name}, {form}, -j {jobs}"
                    make = partial(
                        _cores, meter, what, [_output(meter, name, form, n) for n in (1, jobs)], aim
                    )
                    yield attempt(what, f"≥ {aim}×", make)


def _cores(meter: Meter, what: str, commands: list[list[str]], aim: float) -> Line:
    one, more = (meter.again(*command) for command in commands)
    ratio = one.seconds / more.seconds
    return Line(what, seconds(one), "", seconds(more), f"{ratio:.2f}×", f"≥ {aim}×", ratio >= aim)


def _output(meter: Meter, name: str, form: str, jobs: int) -> list[str]:
    capture = meter.capture(name)
    if form == "six columns":
        return capture.calls(meter.scratch, jobs)
    if form == "report":
        return capture.kwsniff("report", "-j", str(jobs))
    out = str(meter.scratch / f"all.{form}")
    return capture.kwsniff("decode", "-f", form, "-j", str(jobs), "-o", out)


def crowds(meter: Meter) -> Iterator[Line]:
    """A million packets of more and more connections: time for each packet, beside that of 100."""
    source = meter.capture("chatty")
    base = 0.0
    for size, (path, packets) in crowd.make(source.path, meter.scratch, source.ports).items():
        what, aim = f"{size:,} connections", "≤ 1.5×"
        arguments = source.at(path).calls(meter.scratch)
        try:
            run = meter.again(*arguments)
        except RuntimeError as failed:
            yield Line(what, "", "", "", str(failed)[-40:], aim, False)
            continue
        cost = run.seconds / packets
        base = base or cost
        counts = f"{cost * 1e6:.2f} µs, {cost / base:.2f}×"
        yield Line(what, "", "", seconds(run), counts, aim, cost <= 1.5 * base)


def memory(meter: Meter) -> Iterator[Line]:
    """The largest process of all that was measured before, with `--full` and without."""
    runs = {arguments: run for arguments, run in meter.ours.items() if "--full" not in arguments}
    for what, chosen in (("calls and reports", runs), ("all", meter.ours)):
        if chosen:
            arguments, run = max(chosen.items(), key=lambda each: each[1].peak)
            name = arguments[1].rpartition("/")[2]
            counts = f"{run.peak / 1e6:.0f} MB ({arguments[0]} {name})"
            yield Line(what, "", "", seconds(run), counts, "≤ 350 MB", run.peak <= MEMORY)


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
