"""Limits and choices of one run: frozen, so that a run cannot change them, and picklable, so that every
worker process sees the same ones."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Config:
    """What to decode, and how much memory it may take. Sizes are bytes, times are seconds of packet time."""

    # What to decode
    ports: tuple[int, ...] = (9092, 9093, 9094)
    """Broker ports. Connections on them are taken for Kafka until their content says otherwise."""
    detect: bool = True
    """Look for Kafka on other ports too, by content."""
    full: bool = False
    """Keep the decoded bodies of request and response (as JSON in the columns `request` and `response`)."""
    records: bool = False
    """Decompress record batches and show keys, values and headers in the bodies."""
    verify_crc: bool = True
    """Check the CRC of every record batch whose bytes were captured."""

    # How
    kernels: str = "auto"
    """Compiled kernels for plain traffic: `auto` (for large inputs, if they are there), `always`, `never`.
    The events are the same."""

    columns: frozenset[str] | None = None
    """Columns of calls to fill, the others stay null; None for all. What else is asked of a call (when it
    was and how it went) is always there, as are anomalies and connections."""

    # TCP
    idle_timeout: float = 600.0
    """A connection silent for longer ends; what comes later on the same ports is a new connection."""
    reorder_packets: int = 16
    """A hole that the receiver has acknowledged is given up after this many further packets ..."""
    reorder_time: float = 1.0
    """... or after this long."""
    hole_time: float = 30.0
    """A hole nobody acknowledged is given up after this long."""
    max_reorder_bytes: int = 8 * MIB
    """Bytes held per direction behind a hole before it is given up."""

    # Frames and calls
    max_frame_bytes: int = 256 * MIB
    """A larger length prefix is no Kafka frame (brokers refuse requests over 100 MiB by default)."""
    max_connection_bytes: int = 64 * MIB
    """Bytes of one direction's unfinished frame kept; a longer frame keeps its header and is `truncated`."""
    max_buffered_bytes: int = 256 * MIB
    """The same for all connections together."""
    max_outstanding: int = 100_000
    """Requests of one connection waiting for a response; beyond it the oldest is given up."""
    max_connections: int = 50_000
    """Connections followed at once; beyond it the one that was silent longest is closed."""
    orphan_time: float = 1.0
    """How long a response captured before its request waits for it."""
    detect_bytes: int = 64 * 1024
    """Bytes a connection on an unknown port has to show that it is Kafka."""

    # Bodies
    max_nesting: int = 16
    """Record sets inside record sets (magic 0 and 1 wrappers)."""
    max_decompressed_bytes: int = 64 * MIB
    """Of one record batch."""
    max_decompression_ratio: int = 10_000
    """Decompressed to compressed size of one record batch."""

    # Blocks
    block_packets: int = 65_536
    """Packets dissected at a time."""
    block_bytes: int = 16 * MIB
    """Capture bytes read at a time."""
