"""A recorded capture sent again at rising rates over virtual interfaces, past `kwsniff live` and dumpcap.

    replay.py [CAPTURE] [--seconds S] [--rates R,...] [--out docs/live.md]

Needs root, `ip` and dumpcap. For each rate and tool: the packets that were sent and dropped, and the tool's
CPU time; then the highest rate without drops. Each tool listens alone, sender and tool share the processors.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import namespace
import numpy as np
from record import cache_folder

from kwsniff.capture.source import blocks

BEGIN, END = "<!-- replayed -->", "<!-- end of what was replayed -->"
RATES = (10_000, 20_000, 30_000, 45_000, 60_000, 80_000, 100_000, 150_000, 200_000)
BATCH = 64
COLUMNS = "time,connection,api,api_version,correlation_id,error"
_VECTOR = np.dtype([("base", "<u8"), ("size", "<u8")])
_MESSAGE = np.dtype(
    [
        ("name", "V16"),
        ("vectors", "<u8"),
        ("vector_count", "<u8"),
        ("rest", "V24"),
        ("size", "<u4"),
        ("pad", "<u4"),
    ]
)


@dataclass
class Outcome:
    """One tool at one rate."""

    sent: int
    seen: int
    dropped: int
    seconds: float
    cpu: float

    @property
    def rate(self) -> float:
        return self.sent / self.seconds


class Sender:
    """Sends the packets of a capture from an interface with sendmmsg(2)."""

    def __init__(self, interface: str, capture: Path, most: int) -> None:
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        self._socket.bind((interface, 0))
        parts, lengths = [], []
        for block in blocks(capture):
            parts.append(block.data[block.offset[0] :].copy())
            base = sum(map(len, parts[:-1])) - int(block.offset[0])
            lengths.append((block.offset + base, block.caplen))
            if sum(len(each[0]) for each in lengths) >= most:
                break
        self._data = np.concatenate(parts)
        starts = np.concatenate([each[0] for each in lengths])[:most]
        sizes = np.concatenate([each[1] for each in lengths])[:most]
        self._vectors = np.zeros(len(starts), _VECTOR)
        self._vectors["base"], self._vectors["size"] = (
            self._data.ctypes.data + starts.astype(np.uint64),
            sizes,
        )
        self._messages = np.zeros(len(starts), _MESSAGE)
        places = np.arange(len(starts), dtype=np.uint64) * _VECTOR.itemsize
        self._messages["vectors"], self._messages["vector_count"] = self._vectors.ctypes.data + places, 1
        self._sendmmsg = ctypes.CDLL(None, use_errno=True).sendmmsg

    def send(self, rate: int, seconds: float) -> tuple[int, float]:
        """Send at a rate for a time, or as long as there are packets: packets sent, and seconds it took."""
        total = min(int(rate * seconds), len(self._messages))
        base = self._messages.ctypes.data
        begin, sent = time.monotonic(), 0
        while sent < total:
            due = min(int((time.monotonic() - begin) * rate) + 1, total)
            while sent < due:
                count = min(due - sent, BATCH)
                done = self._sendmmsg(
                    self._socket.fileno(), ctypes.c_void_p(base + sent * _MESSAGE.itemsize), count, 0
                )
                if done < 0:
                    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
                sent += done
            time.sleep(0.001)
        return sent, time.monotonic() - begin


def kwsniff(folder: Path) -> list[str]:
    return [
        *(sys.executable, "-m", "kwsniff", "live", "-i", "replay1", "-f", "csv", "--columns", COLUMNS),
        *("--port", PORTS),
    ]


def dumpcap(folder: Path) -> list[str]:
    ports = " or ".join(f"tcp port {port}" for port in PORTS.split(","))
    return ["dumpcap", "-q", "-i", "replay1", "-f", ports, "-w", str(folder / "dumpcap.pcapng")]


TOOLS = {"kwsniff live": (kwsniff, "listening on"), "dumpcap": (dumpcap, "File:")}
PORTS = ""


def run(tool: str, sender: Sender, rate: int, seconds: float) -> Outcome:
    command, ready = TOOLS[tool]
    with tempfile.TemporaryDirectory() as name, open(os.devnull, "wb") as nothing:
        process = subprocess.Popen(command(Path(name)), stdout=nothing, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        try:
            while ready not in (line := process.stderr.readline()):
                if not line:
                    raise SystemExit(f"{tool} did not start")
            time.sleep(0.5)
            sent, took = sender.send(rate, seconds)
            time.sleep(1.0)
        finally:
            process.send_signal(signal.SIGINT)
        said = process.stderr.read()
        _, _, usage = os.wait4(process.pid, 0)
        process.returncode = 0
    seen, dropped = counted(tool, said)
    return Outcome(sent, seen, dropped, took, usage.ru_utime + usage.ru_stime)


def counted(tool: str, said: str) -> tuple[int, int]:
    """Packets seen and dropped, as the tool says at its end."""
    if tool == "dumpcap":
        found = re.search(r"received/dropped on interface '\w+': (\d+)/(\d+)", said)
        assert found is not None, said
        return int(found[1]), int(found[2])
    packets = re.search(r"^([\d,]+) packets?", said, re.M)
    assert packets is not None, said
    so_far = re.findall(r"packets dropped, so far (.*)", said)
    drops = re.findall(r"([\d,]+) by (?:the kernel|kwsniff)", so_far[-1]) if so_far else []
    return whole(packets[1]), sum(map(whole, drops))


def whole(text: str) -> int:
    return int(text.replace(",", ""))


def rising(sender: Sender, rates: tuple[int, ...], seconds: float) -> Iterator[tuple[str, int, Outcome]]:
    failed = dict.fromkeys(TOOLS, 0)
    for rate in rates:
        for tool in TOOLS:
            if failed[tool] < 2:
                outcome = run(tool, sender, rate, seconds)
                failed[tool] += outcome.dropped > 0 or outcome.seen < outcome.sent
                yield tool, rate, outcome


def table(found: list[tuple[str, int, Outcome]], start: dict[str, float]) -> list[str]:
    lines = [
        "| packets/s | tool | sent | dropped | CPU seconds | CPU seconds per 10,000 packets |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    best = dict.fromkeys(TOOLS, 0.0)
    clean = dict.fromkeys(TOOLS, True)
    for tool, _, each in found:
        cpu = max(each.cpu - start[tool], 0.0)
        lost = max(each.dropped, each.sent - each.seen)
        clean[tool] = clean[tool] and lost == 0
        if clean[tool]:
            best[tool] = each.rate
        figures = f"{each.sent:,} | {lost:,} | {cpu:.2f} | {cpu / each.sent * 1e4:.3f}"
        lines.append(f"| {each.rate:,.0f} | {tool} | {figures} |")
    highest = ", ".join(f"{tool} {rate:,.0f}" for tool, rate in best.items())
    return [
        *lines,
        "",
        f"Highest rate without drops, packets/s: {highest}. CPU seconds are those beyond starting.",
    ]


def main() -> None:
    global PORTS
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("capture", nargs="?", type=Path, default=cache_folder() / "chatty.pcap")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rates", default=",".join(map(str, RATES)))
    parser.add_argument("--out", type=Path)
    choice = parser.parse_args()
    import json

    PORTS = ",".join(map(str, json.loads(choice.capture.with_suffix(".json").read_text())["ports"]))
    namespace.enter()
    for command in (
        "link add replay0 type veth peer name replay1",
        "link set replay0 up",
        "link set replay1 up",
    ):
        subprocess.run(["ip", *command.split()], check=True)
    rates = tuple(map(int, choice.rates.split(",")))
    sender = Sender("replay0", choice.capture, int(max(rates) * choice.seconds))
    start = {tool: run(tool, sender, 10, 0.1).cpu for tool in TOOLS}
    found = []
    for tool, rate, outcome in rising(sender, rates, choice.seconds):
        found.append((tool, rate, outcome))
        print(f"{rate:,}/s {tool}: {outcome}", file=sys.stderr)
    lines = table(found, start)
    print("\n".join(lines))
    if choice.out is not None:
        text = choice.out.read_text()
        begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
        choice.out.write_text(text[:begin] + "\n" + "\n".join(lines) + "\n" + text[end:])


if __name__ == "__main__":
    main()
