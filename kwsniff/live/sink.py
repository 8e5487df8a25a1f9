"""What a live session tells those who show or keep what it found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Health:
    """How well the capture keeps up; counts are since the start."""

    interfaces: tuple[str, ...]
    """Names of the interfaces listened to."""
    started_ns: int
    """When the capture began, nanoseconds since 1970 UTC."""
    now_ns: int
    """Until when packets have been decoded, nanoseconds since 1970 UTC."""
    packets: int = 0
    """Packets that passed the kernel's filter and were decoded."""
    bytes: int = 0
    """Of them, on the wire, link layer and all."""
    came: int = 0
    """Packets that passed the kernel's filter, also those that wait or were dropped."""
    kernel_dropped: int = 0
    """Packets that passed the filter but found the kernel's buffer full."""
    own_dropped: int = 0
    """Packets taken from the kernel and given up because kwsniff did not keep up."""
    own_written: int = 0
    """Those of them that were written to a file, and only not decoded."""
    waiting_bytes: int = 0
    """Bytes of packets taken and not decoded yet."""
    connections: int = 0
    """TCP connections followed at present."""
    outstanding: int = 0
    """Requests that wait for a response, with each topic and partition that they name."""
    troubles: tuple[str, ...] = ()
    """Why interfaces, or writing packets, were given up: a line for each."""

    @property
    def dropped(self) -> int:
        """Packets lost, wherever."""
        return self.kernel_dropped + self.own_dropped

    @property
    def dropped_share(self) -> float:
        """The part of the packets that came which was lost."""
        return self.dropped / max(self.came, self.packets + self.dropped, 1)


class LiveSink(Protocol):
    """Takes what a session finds. All methods are called from one thread, the session's; `add` and `tick`
    must not block for long, for the packets that come meanwhile have to wait."""

    def add(self, events: pa.RecordBatch) -> None:
        """Take events (see `kwsniff.rows.schema.EVENTS`) as they were completed."""

    def tick(self, health: Health) -> None:
        """Take note of the time and of the capture's health; called about once a second, and at the end."""

    def close(self) -> None:
        """The session is over; write what is left, close files and sockets."""
