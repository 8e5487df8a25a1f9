"""tcpdump on loopback, bounded by packets, bytes and time."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

KERNEL_BUFFER_KIB = 512 * 1024


class Sniffer:
    """One tcpdump process writing one file: `with Sniffer(...) as sniffer: sniffer.wait(...)`.

    `dropped` is known after the end: packets the kernel had to drop, by tcpdump's own account.
    """

    def __init__(self, path: Path, ports: list[int], *, packets: int | None = None) -> None:
        self.path = path
        self.dropped = 0
        self._stopped = False
        self._command = [
            "nice",
            "-n",
            "-10",
            "tcpdump",
            "-Z",
            "root",
            "-i",
            "lo",
            "-n",
            "-s",
            "0",
            "-B",
            str(KERNEL_BUFFER_KIB),
            "-w",
            str(path),
        ]
        if packets is not None:
            self._command += ["-c", str(packets)]
        self._command.append("tcp and (" + " or ".join(f"port {port}" for port in ports) + ")")

    def __enter__(self) -> Sniffer:
        self._process = subprocess.Popen(self._command, stderr=subprocess.PIPE, text=True)
        assert self._process.stderr is not None
        for line in self._process.stderr:
            if "listening on" in line:
                return self
        raise SystemExit(f"tcpdump did not start: {' '.join(self._command)}")

    def wait(self, *, seconds: float, size: int | None = None, healthy: Callable[[], None]) -> None:
        """Return when tcpdump has its packets, the file its bytes, or the time is over."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self._process.poll() is None:
            if size is not None and self.path.stat().st_size >= size:
                return
            healthy()
            time.sleep(0.2)

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End tcpdump and read what it says of itself; the second time does nothing."""
        if self._stopped:
            return
        self._stopped = True
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        _, said = self._process.communicate(timeout=60)
        found = re.search(r"(\d+) packets? dropped by kernel", said)
        self.dropped = int(found[1]) if found else 0
