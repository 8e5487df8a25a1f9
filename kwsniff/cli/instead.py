"""What a capture holds in which no Kafka was found: for whoever has to see why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice

from kwsniff.capture.error import CaptureError
from kwsniff.capture.source import segments
from kwsniff.cli.arguments import from_pipe
from kwsniff.config import Config

BATCHES = 100
"""Looked at, at the most: some of a large capture say enough."""
SYN, ACK = 2, 16
STARTS = (
    *((word, "HTTP") for word in (b"GET ", b"POST ", b"PUT ", b"HEAD ", b"HTTP/")),
    *((b"\x16\x03", "TLS"), (b"SSH-", "SSH"), (b"PRI * HTTP/2", "HTTP/2")),
)
"""How streams of well-known protocols begin."""
SHOWN = 3


def instead(paths: Sequence[str], config: Config) -> Callable[[], str]:
    """What tells it of captures, once it is known that there is no Kafka in them."""
    return partial(_found, paths, config)


def _found(paths: Sequence[str], config: Config) -> str:
    """The ports with most TCP packets, what their streams begin like, and what to try."""
    if from_pipe(paths):  # which cannot be read again
        return ""
    from kwsniff.answers.stored import is_stored  # these load what few runs need
    from kwsniff.findings.words import many

    if any(map(is_stored, paths)):
        return ""
    packets: Counter[int] = Counter()
    kinds: dict[int, str] = {}
    servers: set[int] = set()
    try:
        for batch in islice(segments(paths, config), BATCHES):
            names = ("src_port", "dst_port", "flags", "payload")
            columns = [batch[name].to_pylist() for name in names]
            for source, target, flags, payload in zip(*columns, strict=True):
                if source is None:
                    continue
                if flags is not None and flags & (SYN | ACK) == SYN:
                    servers.add(target)
                port = target if target in servers else source if source in servers else min(source, target)
                packets[port] += 1
                kind = next((kind for start, kind in STARTS if payload and payload.startswith(start)), None)
                if kind is not None:
                    kinds.setdefault(port, kind)
    except CaptureError:
        return ""
    if not packets:
        return "It holds no TCP: was the right interface captured, with a filter that lets TCP through?"
    told = [
        f"port {port} ({f'{kinds[port]}, ' if port in kinds else ''}{many(count, 'packet')})"
        for port, count in packets.most_common(SHOWN)
    ]
    more = f" and {len(packets) - SHOWN:,} ports more" if len(packets) > SHOWN else ""
    ports = ",".join(str(port) for port, _ in packets.most_common(SHOWN) if kinds.get(port) != "SSH")
    return (
        f"Instead: TCP on {', '.join(told)}{more}. If a broker listens there, try --port {ports}. What is "
        "encrypted cannot be read, and packets have to be captured whole (tcpdump -s 0)."
    )
