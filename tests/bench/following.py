"""How long it takes from a packet to its row when a directory is followed, and what grows meanwhile.

    tests/bench/following.py [--seconds 60] [--rotate 1] [--sample librdkafka-groups] [--master local[2]]

A sample's packets are written at an even pace, over and over with later times, into a file that grows and is
rotated as by `tcpdump -G`. `kwsniff pipeline --follow` runs with its own defaults. A packet's rows are there
when the manifest counts its file. Whatever the stream keeps is counted after each batch.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

from kwsniff.capture.place import Place
from kwsniff.spark.version import STREAM, last_record
from tests.bench.pipeline import cpu_seconds, family, resident
from tests.samples import sample
from tests.spark.rotated import HEADER, RECORD, rotated

PACE = 200
"""Packets a second."""
MIB = 1 << 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rotate", type=float, default=1)
    parser.add_argument("--sample", default="librdkafka-groups")
    parser.add_argument("--master", default="local[2]")
    choice = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kwsniff-following-") as scratch:
        place = Path(scratch)
        writer = Writer(place / "in", choice.sample, choice.rotate)
        command = [sys.executable, "-m", "kwsniff", "pipeline", "--follow", str(place / "in")]
        command += ["--out", str(place / "out"), "--master", choice.master]
        stream = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
        try:
            seen = Seen(place / "out", stream)
            writer.start()
            seen.watch(choice.seconds)
        finally:
            writer.stop()
            stream.send_signal(signal.SIGTERM)
            stream.wait(120)
    print("\n".join(told(writer, seen)))


class Writer(threading.Thread):
    """A capturing program that rotates."""

    def __init__(self, place: Path, name: str, rotate: float) -> None:
        super().__init__(daemon=True)
        place.mkdir()
        self._place, self._rotate, self._over = place, rotate, threading.Event()
        self._header, self._records = recorded(name)
        self.written: list[list[float]] = []
        """Of each file, when each packet was written."""

    def run(self) -> None:
        packets = self.packets()
        while not self._over.is_set():
            until, times = time.monotonic() + self._rotate, []
            with (self._place / f"{len(self.written):06}.pcap").open("wb", buffering=0) as file:
                file.write(self._header)
                while time.monotonic() < until:
                    file.write(next(packets))
                    times.append(time.monotonic())
                    time.sleep(1 / PACE)
            self.written.append(times)

    def packets(self) -> Iterator[bytes]:
        """The sample's packets, again and again, each time an hour later."""
        turn = 0
        while True:
            for second, rest, size, wire, data in self._records:
                yield RECORD.pack(second + 3600 * turn, rest, size, wire) + data
            turn += 1

    def stop(self) -> None:
        self._over.set()
        self.join()


def recorded(name: str) -> tuple[bytes, list[tuple[int, int, int, int, bytes]]]:
    """A file's header, and its packets: seconds, nanoseconds, captured and original length, bytes."""
    with tempfile.TemporaryDirectory() as scratch:
        (file,) = rotated(sample(name).paths, Path(scratch), 1 << 30)
        data = file.read_bytes()
    found, at = [], HEADER.size
    while at < len(data):
        second, rest, size, wire = RECORD.unpack_from(data, at)
        at += RECORD.size
        found.append((second, rest, size, wire, data[at : at + size]))
        at += size
    return data[: HEADER.size], found


class Seen:
    """What can be seen of a stream from outside."""

    def __init__(self, out: Path, stream: subprocess.Popen[bytes]) -> None:
        self._out, self._stream = out, stream
        self.at: list[tuple[float, int]] = []
        """When so many files were counted."""
        self.kept: list[tuple[int, int, int, int]] = []
        """After each batch: Parquet files, the stream's own files, MiB of Java, most MiB of Python."""
        self.cpu = 0.0
        self._spent = 0.0

    def watch(self, seconds: float) -> None:
        """From the first batch on, for so long."""
        until = None
        while until is None or time.monotonic() < until:
            if self._stream.poll() is not None:
                raise SystemExit("the stream ended")
            files = last_record(Place.of(self._out)).files
            if files > (self.at[-1][1] if self.at else 0):
                self.at.append((time.monotonic(), files))
                self.kept.append(self._kept())
                if until is None:
                    until, self._spent = time.monotonic() + seconds, cpu_seconds()
            time.sleep(0.05)
        self.cpu = cpu_seconds() - self._spent

    def _kept(self) -> tuple[int, int, int, int]:
        # Folders of batches come and go meanwhile.
        parquet = sum(name.endswith(".parquet") for _, _, names in os.walk(self._out) for name in names)
        own = sum(len(files) for _, _, files in os.walk(self._out / STREAM))
        sizes = {pid: resident(pid) // MIB for pid in family()[1:]}
        java = {pid for pid in sizes if is_java(pid)}
        python = [size for pid, size in sizes.items() if pid not in java]
        return parquet, own, max((sizes[pid] for pid in java), default=0), max(python, default=0)


def is_java(pid: int) -> bool:
    try:
        return "java" in Path(f"/proc/{pid}/comm").read_text()
    except OSError:  # it has ended meanwhile
        return False


def told(writer: Writer, seen: Seen) -> list[str]:
    """Rows of Markdown."""
    waits = []
    first = seen.at[0][1]
    for number, times in enumerate(writer.written[first:], first):
        there = next((when for when, files in seen.at if files > number), None)
        waits += [there - each for each in times] if there is not None else []
    cuts = statistics.quantiles(waits, n=100)
    batches = max(len(seen.at) - 1, 1)
    lines = [
        f"{len(waits):,} packets in {seen.at[-1][1] - first} files, {batches} batches, "
        f"{seen.cpu / batches:.1f} CPU seconds each.",
        "",
        "| packet to row | seconds |",
        "| --- | --- |",
        *(f"| {name} | {value:.1f} |" for name, value in (
            ("least", min(waits)), ("half", cuts[49]), ("95 %", cuts[94]), ("99 %", cuts[98]),
            ("most", max(waits)),
        )),
        "",
        "| batch | Parquet files | files of the stream's own | Java, MiB | largest Python, MiB |",
        "| --- | --- | --- | --- | --- |",
    ]  # fmt: skip
    step = max(batches // 8, 1)
    return lines + [
        f"| {number} | {' | '.join(map(str, row))} |"
        for number, row in enumerate(seen.kept)
        if number % step == 0
    ]


if __name__ == "__main__":
    main()
