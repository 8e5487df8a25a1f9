"""Shows a capture file on the live screen, in the time it was recorded in.

    python -m tests.live.screen.replay captures/librdkafka-groups.pcapng --speed 2
    python -m tests.live.screen.replay trace.pcap --port 9192 --svg a.svg --keys c,2 --size 160x50 --at 30

The second form draws no terminal: it writes the screen as it is at so many seconds, after those keys.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kwsniff.capture.source import segments
from kwsniff.config import Config
from kwsniff.engine.analyze import analyze
from kwsniff.live.screen import Screen
from kwsniff.live.screen.app import LiveApp
from kwsniff.live.screen.lastminute import ScreenStatistics, Snapshot
from kwsniff.live.session import Health

FONTS = re.compile(r"@font-face *\{.*?\}\s*", re.DOTALL)
STEP_S = 0.2
HEADERS = 66
"""Bytes of a packet besides its payload, about."""


@dataclass
class Recording:
    """Events and packets of a capture, by time."""

    events: pa.Table
    known_ns: np.ndarray
    """When each event was complete."""
    packet_ns: np.ndarray
    packet_bytes: np.ndarray

    @property
    def start_ns(self) -> int:
        return int(self.packet_ns[0])

    @property
    def end_ns(self) -> int:
        return int(self.packet_ns[-1])

    def steps(self, dropped: int = 0) -> Iterator[tuple[pa.RecordBatch, Health]]:
        """The events of each STEP_S, and the health at its end."""
        done = 0
        for now in range(self.start_ns, self.end_ns + int(STEP_S * 1e9), int(STEP_S * 1e9)):
            upto = int(np.searchsorted(self.known_ns, now, "right"))
            part = self.events.slice(done, upto - done).combine_chunks()
            batches = part.to_batches()
            done = upto
            yield (
                batches[0] if batches else pa.RecordBatch.from_pylist([], part.schema),
                self.health(now, dropped),
            )

    def health(self, now: int, dropped: int) -> Health:
        packets = int(np.searchsorted(self.packet_ns, now, "right"))
        return Health(
            interfaces=("replay",), started_ns=self.start_ns, now_ns=now, packets=packets,
            bytes=int(self.packet_bytes[:packets].sum()),
            kernel_dropped=dropped * ((now - self.start_ns) // 10**10), connections=1,
        )  # fmt: skip


def record(paths: list[str], ports: tuple[int, ...]) -> Recording:
    """Decode a capture."""
    config = Config(ports=ports) if ports else Config()
    times, sizes = [], []

    def watched() -> Iterator[pa.RecordBatch]:
        for batch in segments(paths, config):
            times.append(batch["time"].to_numpy())
            sizes.append(batch["length"].to_numpy() + HEADERS)
            yield batch

    events = pa.Table.from_batches(analyze(watched(), config))
    known = pc.coalesce(
        events["response_end_time"], events["request_end_time"], events["last_time"], events["time"]
    )
    packets = np.concatenate(times)
    known_ns = known.cast(pa.int64()).fill_null(int(packets[-1]) // 1000).to_numpy() * 1000
    order, packet_order = np.argsort(known_ns, kind="stable"), np.argsort(packets, kind="stable")
    return Recording(
        events.take(order), known_ns[order], packets[packet_order], np.concatenate(sizes)[packet_order]
    )


def play(screen: Screen, recording: Recording, speed: float, dropped: int, over: threading.Event) -> None:
    """Feed the screen, as a session does."""
    begin = time.monotonic()
    for number, (events, health) in enumerate(recording.steps(dropped)):
        screen.add(events)
        if number % round(1 / STEP_S) == 0:
            screen.tick(health)
        if over.wait(max(begin + number * STEP_S / speed - time.monotonic(), 0)):
            break
    screen.close()


def snapshot(recording: Recording, seconds: float, dropped: int = 0) -> Snapshot:
    """What is known after so many seconds."""
    statistics = ScreenStatistics()
    for events, health in recording.steps(dropped):
        statistics.add(events)
        statistics.tick(health)
        if health.now_ns - recording.start_ns >= seconds * 1e9:
            break
    return statistics.snapshot()


async def save(shown: Snapshot, title: str, keys: list[str], size: tuple[int, int], path: Path) -> None:
    """Write the screen as SVG."""
    app = LiveApp(title, lambda: shown, lambda: None)
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        await pilot.press(*keys)
        await pilot.pause()
        # Without the web font that it would have viewers load.
        path.write_text(FONTS.sub("", app.export_screenshot(title="kwsniff live")))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("paths", nargs="+")
    parser.add_argument("--port", default="", help="Kafka ports, joined by commas")
    parser.add_argument("--speed", type=float, default=1.0)
    parser.add_argument("--dropped", type=int, default=0, help="packets to lose each ten seconds")
    parser.add_argument("--svg", type=Path)
    parser.add_argument("--keys", default="")
    parser.add_argument("--size", default="100x30")
    parser.add_argument("--at", type=float, default=60.0)
    chosen = parser.parse_args()
    recording = record(chosen.paths, tuple(map(int, filter(None, chosen.port.split(",")))))
    title = Path(chosen.paths[0]).name
    if chosen.svg:
        width, height = map(int, chosen.size.split("x"))
        shown = snapshot(recording, chosen.at, chosen.dropped)
        asyncio.run(
            save(shown, title, [key for key in chosen.keys.split(",") if key], (width, height), chosen.svg)
        )
        return
    over = threading.Event()
    screen = Screen(title, over.set)
    thread = threading.Thread(target=play, args=(screen, recording, chosen.speed, chosen.dropped, over))
    thread.start()
    try:
        screen.run()
    finally:
        over.set()
        thread.join()


if __name__ == "__main__":
    main()
