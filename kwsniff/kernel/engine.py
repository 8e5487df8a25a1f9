"""The engine: batches of segments in, EVENTS out.

Theory of operation. The columns of a batch become rows of `segments`, and the kernels take them one after the
other, in capture order. What they tell (calls, anomalies, connections that are over) stands in tables of a
fixed size; when one is full, or the batch is over, it is made into EVENTS and the tables are emptied.

Rows come out in the order of the packets that settled them, whatever the size of batches and tables: a table
that is full is emptied up to the packet at hand only.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kwsniff.config import Config
from kwsniff.kernel import entry
from kwsniff.kernel.machine import Machine
from kwsniff.kernel.told import Told
from kwsniff.net.columns import SegmentColumns

Ints = NDArray[np.int64]
SECOND = 1_000_000_000
AT_ONCE = 16_384
"""Segments that stand in the table at a time."""
NOTHING = np.zeros(0, np.uint8)


class Engine:
    """All connections of one input."""

    def __init__(self, config: Config, *, compiled: bool | None = None) -> None:
        """`compiled` as for `Machine`."""
        self.config = config
        self._machine = Machine(self._drain, compiled=compiled)
        self._told = Told(self._machine, config)
        self._made: list[pa.RecordBatch] = []
        self._captures: dict[str | None, int] = {}
        self._set_limits(config)

    def _set_limits(self, config: Config) -> None:
        limits = self._machine.t.limits[0]
        limits.idle_time = int(config.idle_timeout * SECOND)
        limits.reorder_packets = config.reorder_packets
        limits.reorder_time = int(config.reorder_time * SECOND)
        limits.hole_time = int(config.hole_time * SECOND)
        limits.orphan_time = int(config.orphan_time * SECOND)
        limits.request_timeout = (
            -1 if config.request_timeout is None else int(config.request_timeout * SECOND)
        )
        for name in (
            "max_reorder_bytes", "max_frame_bytes", "max_connection_bytes", "max_buffered_bytes",
            "max_outstanding", "max_outstanding_total", "max_connections", "detect_bytes", "max_elements",
        ):  # fmt: skip
            setattr(limits, name, getattr(config, name))
        limits.detect, limits.verify_crc, limits.full = config.detect, config.verify_crc, config.full
        wanted = config.columns
        limits.lists = wanted is None or bool(wanted & {"topics", "topic_ids", "partitions"})
        self._machine.put("ports", [{"port": port} for port in config.ports])

    def feed(self, segments: SegmentColumns) -> list[pa.RecordBatch]:
        """Take a batch of segments in capture order; return the events it settles."""
        machine = self._machine
        run = machine.t.run[0]
        run.capture = self._told.capture(segments.capture)
        first = int(run.order)
        self._told.note_packets(segments.notes, first, int(run.capture))
        buffer, start = self._set_buffers(segments)
        for at in range(0, len(segments), AT_ONCE):
            stop = min(at + AT_ONCE, len(segments))
            self._set_segments(segments, buffer, start, at, stop)
            run = machine.t.run[0]
            run.row, run.phase = 0, 0
            machine.act(entry.FOLLOW, stop - at)
            self._keep_within_limits()
        self._drain(everything=True)
        return self._take()

    def finish(self) -> list[pa.RecordBatch]:
        """The input is over: what is still open ends, oldest connection first."""
        self._machine.act(entry.FINISH)
        self._drain(everything=True)
        return self._take()

    def tick(self, now: int) -> list[pa.RecordBatch]:
        """No segment before `now` (nanoseconds since 1970) is still to come: return what that settles."""
        self._machine.act(entry.TICK, now)
        self._drain(everything=True)
        return self._take()

    @property
    def connections(self) -> int:
        """Connections followed at present."""
        return int(self._machine.t.run[0].followed)

    @property
    def steps(self) -> int:
        """Work done so far: segments, bytes searched and entries of lists passed."""
        return int(self._machine.t.run[0].steps)

    def _take(self) -> list[pa.RecordBatch]:
        made, self._made = self._made, []
        return made

    def _drain(self, everything: bool = False) -> None:
        batch = self._told.take(everything)
        if batch is not None:
            self._made.append(batch)

    def _keep_within_limits(self) -> None:
        machine, config = self._machine, self.config
        run = machine.t.run[0]
        if run.arena_live > config.max_buffered_bytes:
            machine.act(entry.GIVE_UP_BUFFERS, config.max_buffered_bytes // 2)
        if run.waiting > config.max_outstanding_total:
            machine.act(entry.GIVE_UP_REQUESTS, config.max_outstanding_total // 2)

    # Segments in

    def _set_buffers(self, segments: SegmentColumns) -> tuple[Ints, Ints]:
        """Give the kernels the bytes of a batch; where those of each segment are then."""
        buffers = segments.buffers
        buffer, start = segments.buffer, segments.start
        odd = buffer > 1
        extra: Any = b""
        if odd.any():
            buffer, start = buffer.copy(), start.copy()
            pieces, at = [], 0
            for row in np.flatnonzero(odd).tolist():
                first, size = int(start[row]), int(segments.captured[row])
                pieces.append(bytes(buffers[int(buffer[row])][first : first + size]))
                buffer[row], start[row] = 2, at
                at += size
            extra = b"".join(pieces)
        chosen = {"inline": buffers[0] if buffers else b"", "block": buffers[1] if len(buffers) > 1 else b"",
                  "extra": extra}  # fmt: skip
        for name, data in chosen.items():
            self._machine.replace(name, self._bytes(data))
        return buffer, start

    def _bytes(self, data: Any) -> Any:
        if self._machine.compiled:
            return np.frombuffer(data, np.uint8) if len(data) else NOTHING
        return data if isinstance(data, bytes) else bytes(data)

    def _set_segments(
        self, segments: SegmentColumns, buffer: Ints, start: Ints, first: int, stop: int
    ) -> None:
        columns = {
            name: getattr(segments, name)[first:stop]
            for name in ("packet", "time", "src_hi", "src_lo", "dst_hi", "dst_lo", "src_port", "dst_port",
                         "seq", "ack", "flags", "length", "captured")
        } | {"buffer": buffer[first:stop], "start": start[first:stop]}  # fmt: skip
        machine, count = self._machine, stop - first
        if len(machine.t.segments) < count:
            machine.grow("segments", count)
        table = machine.t.segments
        for name, values in columns.items():
            if machine.compiled:
                table[name][:count] = values
            else:
                for row, value in zip(table, values.tolist(), strict=False):
                    setattr(row, name, value)
