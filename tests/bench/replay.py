"""A recorded capture sent again at rising rates over virtual interfaces, past `kwsniff live` and dumpcap.

    python -m tests.bench.replay [CAPTURE] [--seconds S] [--rates R,...] [--out docs/live.md]

Needs root, `ip` and dumpcap. For each rate and tool: the packets that were sent and dropped, and the tool's
CPU time; then the highest rate without drops. Each tool listens alone, sender and tool share the processors.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.bench import namespace, variants
from tests.bench.aims import COLUMNS
from tests.bench.measure import CACHE, say
from tests.bench.pcapfile import HEADER, LENGTHS, TIME

RATES = (10_000, 20_000, 30_000, 45_000, 60_000, 80_000, 100_000, 150_000, 200_000)
BATCH = 64
READY = {"kwsniff live": "listening on", "dumpcap": "File:"}
_VECTOR = np.dtype([("base", "<u8"), ("size", "<u8")])
_MESSAGE = np.dtype(
    [("name", "V16"), ("vectors", "<u8"), ("count", "<u8"), ("rest", "V24"), ("size", "<u4"), ("pad", "<u4")]
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
    def lost(self) -> int:
        return max(self.dropped, self.sent - self.seen)


class Sender:
    """Sends the packets of a capture from an interface with sendmmsg(2)."""

    def __init__(self, interface: str, capture: Path, most: int) -> None:
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        self._socket.bind((interface, 0))
        ends = variants.index(capture).ends[:most]
        starts = np.concatenate([[HEADER], ends[:-1]]) + TIME + LENGTHS.size
        self._data = np.fromfile(capture, np.uint8, int(ends[-1]))
        self._vectors = np.zeros(len(ends), _VECTOR)
        self._vectors["base"] = self._data.ctypes.data + starts.astype(np.uint64)
        self._vectors["size"] = ends - starts
        self._messages = np.zeros(len(ends), _MESSAGE)
        places = np.arange(len(ends), dtype=np.uint64) * _VECTOR.itemsize
        self._messages["vectors"], self._messages["count"] = self._vectors.ctypes.data + places, 1
        self._sendmmsg = ctypes.CDLL(None, use_errno=True).sendmmsg

    def send(self, rate: int, seconds: float) -> tuple[int, float]:
        """Send at a rate for a time, or as long as there are packets: packets sent, and seconds it took."""
        total = min(int(rate * seconds), len(self._messages))
        base = self._messages.ctypes.data
        begin, sent = time.monotonic(), 0
        while sent < total:
            due = min(int((time.monotonic() - begin) * rate) + 1, total)
            while sent < due:
                place = ctypes.c_void_p(base + sent * _MESSAGE.itemsize)
                done = self._sendmmsg(self._socket.fileno(), place, min(due - sent, BATCH), 0)
                if done < 0:
                    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
                sent += done
            time.sleep(0.001)
        return sent, time.monotonic() - begin


def command(tool: str, ports: list[int], folder: str) -> list[str]:
    if tool == "dumpcap":
        wanted = " or ".join(f"tcp port {port}" for port in ports)
        return ["dumpcap", "-q", "-i", "replay1", "-f", wanted, "-w", f"{folder}/dumpcap.pcapng"]
    live = [sys.executable, "-m", "kwsniff", "live", "-i", "replay1", "-f", "csv", "--columns", COLUMNS]
    return [*live, "--port", ",".join(map(str, ports))]


def run(tool: str, ports: list[int], sender: Sender, rate: int, seconds: float) -> Outcome:
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(
            command(tool, ports, folder), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        assert process.stderr is not None
        try:
            while READY[tool] not in (line := process.stderr.readline()):
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
    return Outcome(sent, *counted(tool, said), took, usage.ru_utime + usage.ru_stime)


def counted(tool: str, said: str) -> tuple[int, int]:
    """Packets seen and dropped, as the tool says at its end."""
    if tool == "dumpcap":
        found = re.search(r"received/dropped on interface '\w+': (\d+)/(\d+)", said)
        assert found is not None, said
        return int(found[1]), int(found[2])
    packets = re.search(r"([\d,]+) packets?, [\d,.]+ \w", said)
    assert packets is not None, said
    so_far = re.findall(r"packets dropped, so far (.*)", said)
    drops = re.findall(r"([\d,]+) by (?:the kernel|kwsniff)", so_far[-1]) if so_far else []
    return whole(packets[1]), sum(map(whole, drops))


def whole(text: str) -> int:
    return int(text.replace(",", ""))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("capture", nargs="?", type=Path, default=CACHE / "chatty.pcap")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rates", default=",".join(map(str, RATES)))
    parser.add_argument("--out", type=Path)
    choice = parser.parse_args()
    ports = json.loads(choice.capture.with_suffix(".json").read_text())["ports"]
    namespace.enter()
    for what in ("add replay0 type veth peer name replay1", "set replay0 up", "set replay1 up"):
        subprocess.run(["ip", "link", *what.split()], check=True)
    rates = tuple(map(int, choice.rates.split(",")))
    sender = Sender("replay0", choice.capture, int(max(rates) * choice.seconds))
    start = {tool: run(tool, ports, sender, 10, 0.1).cpu for tool in READY}
    best, failed = dict.fromkeys(READY, 0.0), dict.fromkeys(READY, 0)
    lines = [
        "| packets/s | tool | sent | dropped | CPU seconds | CPU seconds per 10,000 packets |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for rate in rates:
        for tool in (tool for tool in READY if failed[tool] < 2):
            each = run(tool, ports, sender, rate, choice.seconds)
            reached, cpu = each.sent / each.seconds, max(each.cpu - start[tool], 0.0)
            failed[tool] += each.lost > 0
            if not failed[tool]:
                best[tool] = reached
            figures = f"{each.sent:,} | {each.lost:,} | {cpu:.2f} | {cpu / each.sent * 1e4:.3f}"
            lines.append(f"| {reached:,.0f} | {tool} | {figures} |")
            print(lines[-1], file=sys.stderr)
    highest = ", ".join(f"{tool} {reached:,.0f}" for tool, reached in best.items())
    lines += ["", f"Highest rate without drops, packets/s: {highest}. CPU seconds are those beyond starting."]
    say(lines, choice.out, "replayed")


if __name__ == "__main__":
    main()
