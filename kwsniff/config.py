"""Limits and choices of one run: frozen, so that a run cannot change them, and picklable, so that every
worker process sees the same ones."""

from __future__ import annotations

import errno
import os
import re
import stat
from dataclasses import dataclass
from typing import Any

MIB = 1 << 20
MAX_ELEMENTS = 150_000
"""Default of `Config.max_elements`."""
DEFAULT_MEMORY = 512 * 10**6
BASE_MEMORY = 160 * 10**6
"""What a process takes before it has read anything, rounded up."""
KERNELS_MEMORY = 90 * 10**6
"""What the tables of compiled kernels take besides, and what they tell."""
LEAST_MEMORY = 256 * 10**6
SIZED = frozenset(
    (
        *("max_connection_bytes", "max_buffered_bytes", "max_reorder_bytes", "max_outstanding"),
        *("max_outstanding_total", "max_connections", "max_elements", "max_decompressed_bytes"),
        *("max_samples",),
        *("block_bytes", "slice_bytes"),
    )
)
"""Fields that `Config.within` sizes."""


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

    keylog: str | None = None
    """Path of a TLS key log (RFC 9850), to which lines may still be added. Secrets that a pcapng file holds
    are used in any case."""

    # How
    kernels: str = "auto"
    """`auto`: the engine's kernels as they were compiled when kwsniff was installed, if they were; `never`:
    interpreted, which is slow. The events are the same."""

    columns: frozenset[str] | None = None
    """Columns of calls to fill, the others stay null; None for all. What else is asked of a call (when it
    was and how it went) is always there, as are connections and anomalies, but for what anomalies of
    connections say in words (`detail`)."""

    # TCP
    idle_timeout: float = 86_400.0
    """A connection silent for longer ends. After ten minutes it goes on only with what fits its sequence
    numbers; anything else on the same ports is a new connection."""
    reorder_packets: int = 16
    """A hole that the receiver has acknowledged is given up after this many further packets ..."""
    reorder_time: float = 1.0
    """... or after this long."""
    hole_time: float = 30.0
    """A hole is given up after this long where nothing was captured of the receiver, who may otherwise
    acknowledge it or still wait for its bytes."""
    max_reorder_bytes: int = 8 * MIB
    """Bytes held per direction behind a hole before it is given up."""

    # Frames and calls
    max_frame_bytes: int = 256 * MIB
    """A larger length prefix is no Kafka frame (brokers refuse requests over 100 MiB by default)."""
    max_memory: int = DEFAULT_MEMORY
    """What the limits were divided from, see `Config.within`."""
    max_connection_bytes: int = 48 * MIB
    """Bytes of one direction's unfinished frame kept; a longer frame keeps its header and is `truncated`."""
    max_buffered_bytes: int = 72 * MIB
    """The same for all connections together, with what waits behind holes."""
    max_outstanding: int = 125_000
    """Requests of one connection waiting for a response; beyond it the oldest is given up."""
    max_outstanding_total: int = 250_000
    """The same for all connections, counting also each topic and partition that a request names."""
    max_connections: int = 30_000
    """Connections followed at once; beyond it the one that was silent longest is closed."""
    orphan_time: float = 1.0
    """How long a response captured before its request waits for it."""
    request_timeout: float | None = None
    """A request that waits longer for its response is reported as unanswered, even if the connection stays
    open; what a request lets the broker wait comes on top. None: it waits until the connection ends. Only a
    source that tells the time looks at it (a live one), see `kwsniff.net.segments.at_time`."""
    detect_bytes: int = 64 * 1024
    """Bytes a connection on an unknown port has to show that it is Kafka."""

    # Bodies
    max_elements: int = MAX_ELEMENTS
    """Array elements of one message's body; a message with more is `undecoded`."""
    max_nesting: int = 16
    """Record sets inside record sets (magic 0 and 1 wrappers)."""
    max_decompressed_bytes: int = 20 * MIB
    """Of one record batch."""
    max_decompression_ratio: int = 10_000
    """Decompressed to compressed size of one record batch."""

    # Reports
    thresholds: tuple[tuple[str, float], ...] = ()
    """Thresholds of findings that are not to be the defaults, by name: docs/findings.md lists them."""
    max_samples: int = 3_000_000
    """Calls, and topics of calls, of which a report keeps the times for exact percentiles; with more they
    are approximate."""

    # Blocks
    block_packets: int = 65_536
    """Packets dissected at a time."""
    block_bytes: int = 16 * MIB
    """Capture bytes read at a time."""
    slice_bytes: int = 8 * MIB
    """Payload bytes, at most, that are taken at a time; names that nobody needs any more go between."""

    @classmethod
    def within(cls, memory: int, **choices: Any) -> Config:
        """A configuration whose limits are sized so that one process stays below `memory` bytes; `choices`
        are its other fields.

        What Python, Arrow, NumPy and the kernels take before the first packet comes off first; the limits
        share the rest in fixed proportions, those of the defaults. With less than the default, what kernels
        tell comes in smaller parts, so they take less in proportion.

        Raises:
            ValueError: less than `LEAST_MEMORY`.
        """
        if memory < LEAST_MEMORY:
            raise ValueError(f"less than {LEAST_MEMORY // MIB} MiB")
        usual = cls()
        kernels = 0 if choices.get("kernels") == "never" else KERNELS_MEMORY
        kernels = min(kernels, kernels * (memory - BASE_MEMORY) // (DEFAULT_MEMORY - BASE_MEMORY))
        share = (memory - BASE_MEMORY - kernels) / (DEFAULT_MEMORY - BASE_MEMORY - KERNELS_MEMORY)
        sized: dict[str, Any] = {name: int(getattr(usual, name) * share) for name in SIZED}
        for name in ("block_bytes", "slice_bytes"):  # more of these gains nothing
            sized[name] = min(sized[name], getattr(usual, name))
        return cls(**{"max_memory": memory, **sized, **choices})


def ports_of(text: str) -> tuple[int, ...]:
    """Ports from a list such as ``9092,19092-19094``. Raises ValueError."""
    ports: list[int] = []
    for part in map(str.strip, text.split(",")):
        first, _, last = part.partition("-")
        if not (first.isdecimal() and (last or first).isdecimal()):
            raise ValueError(f"{part!r} is no port")
        low, high = int(first), int(last or first)
        if not 1 <= low <= high <= 65535:
            raise ValueError(f"{part!r} is outside 1 to 65535 or runs backwards")
        ports.extend(range(low, high + 1))
    return tuple(dict.fromkeys(ports))


SSLKEYLOGFILE = "SSLKEYLOGFILE"
"""The environment variable that tells TLS libraries where to write their key log (RFC 9850, section 3)."""


def key_log(named: str | os.PathLike[str] | None) -> str | None:
    """Absolute path of the key log to use: `named`; where that is None, what SSLKEYLOGFILE names if it is
    there; none where that is empty. Raises OSError if the one that was named is no file that can be read."""
    if named is None:
        found = os.environ.get(SSLKEYLOGFILE, "")
        return os.path.abspath(found) if os.path.isfile(found) and os.access(found, os.R_OK) else None
    if not (path := os.fspath(named)):
        return None
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode):  # several processes read it, more than once
        raise OSError(errno.EINVAL, "is no regular file", path)
    open(path, "rb").close()
    return os.path.abspath(path)


UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9}


def bytes_of(text: str) -> int:
    """Bytes from a number with K, M or G (powers of 1000), or without. Raises ValueError."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([KMG]?)(?:I?B)?", text.strip().upper())
    if found is None:
        raise ValueError(f"{text!r} is no size such as 512M or 2G")
    return int(float(found[1]) * UNITS[found[2]])
