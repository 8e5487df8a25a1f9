"""Segments into a machine: its limits, and what kernels take at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kwsniff.config import Config
from kwsniff.engine.eventcolumns import end_weight
from kwsniff.engine.machine import Machine
from kwsniff.engine.tables import SECOND
from kwsniff.net.segments import SegmentColumns

Ints = NDArray[np.int64]
AT_ONCE = 16_384
"""Segments that stand in the table at a time."""
NOTHING = np.zeros(0, np.uint8)
OF_LISTS = frozenset(
    ("topics", "topic_ids", "partitions", "asked", "advertised", "resources", "waited_us", "broker_us")
)
"""Columns of calls that are made from the lists of bodies."""


class Intake:
    """A machine with the limits of a configuration, which is given segments."""

    kind = Machine

    def __init__(
        self, config: Config, share: tuple[int, int] | None = None, *, compiled: bool | None = None
    ) -> None:
        """`share` is (index, count): follow only the connections that fall to this one of several engines,
        each of which is fed everything. `compiled` as for `Machine`; None also leaves it to the config."""
        self.config = config
        self._share = share
        if compiled is None and config.kernels == "never":
            compiled = False
        self.machine = self.kind(compiled=compiled)
        self._set_limits(config)

    @property
    def compiled(self) -> bool:
        """Whether its kernels are."""
        return self.machine.compiled

    def _set_limits(self, config: Config) -> None:
        limits = self.machine.t.limits[0]
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
        limits.detect, limits.verify_crc = config.detect, config.verify_crc
        limits.full, limits.records = config.full, config.records
        wanted = config.columns
        limits.lists = wanted is None or bool(wanted & OF_LISTS)
        self.machine.put("ports", [{"port": port} for port in config.ports])

    def _slices(self, segments: SegmentColumns) -> Iterator[tuple[int, int]]:
        """Parts of a batch to take one after the other: texts that nothing refers to go between them."""
        ends = np.cumsum(segments.captured)
        at = 0
        while at < len(segments):
            most = (ends[at - 1] if at else 0) + self.config.slice_bytes
            stop = min(at + AT_ONCE, max(at + 1, int(np.searchsorted(ends, most, "right"))))
            yield at, min(stop, len(segments))
            at = stop

    def _set_buffers(self, segments: SegmentColumns) -> tuple[Ints, Ints]:
        """Give the kernels the bytes of a batch; where those of each segment are then."""
        buffers = segments.buffers
        buffer, start = segments.buffer, segments.start
        extra: Any = buffers[2] if len(buffers) == 3 else b""
        odd = buffer > 1
        if len(buffers) > 3 and odd.any():
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
            self.machine.replace(name, self.bytes_of(data))
        return buffer, start

    def bytes_of(self, data: Any) -> Any:
        if self.machine.compiled:
            return np.frombuffer(data, np.uint8) if len(data) else NOTHING
        return data if isinstance(data, bytes) else bytes(data)

    def _set_segments(
        self, segments: SegmentColumns, buffer: Ints, start: Ints, first: int, stop: int
    ) -> None:
        columns = {
            name: getattr(segments, name)[first:stop]
            for name in ("packet", "time", "src_hi", "src_lo", "dst_hi", "dst_lo", "src_port", "dst_port",
                         "seq", "ack", "flags", "tsval", "length", "captured")
        } | {"buffer": buffer[first:stop], "start": start[first:stop]}  # fmt: skip
        if self._share is not None:
            index, shares = self._share
            whose = share_of(segments, shares)
            columns["apart"] = (whose[first:stop] != index).astype(np.int64)
        if len(self.machine.t.segments) < stop - first:
            self.machine.grow("segments", stop - first)
        self.machine.set_columns("segments", columns)


def share_of(segments: SegmentColumns, count: int) -> Ints:
    """Which of `count` engines follows the connection of each segment: the same for both directions."""
    x, y = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)
    source = end_weight(segments.src_hi, segments.src_lo, segments.src_port)
    target = end_weight(segments.dst_hi, segments.dst_lo, segments.dst_port)
    mixed = (np.minimum(source, target) ^ np.maximum(source, target) * x) * y
    return ((mixed ^ mixed >> np.uint64(32)) % np.uint64(count)).astype(np.int64)
