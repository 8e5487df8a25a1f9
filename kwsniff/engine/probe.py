"""Deciding what a connection carries and which end is the client, from the first bytes captured.

Theory of operation. Until a decision is made, what both streams deliver is held. The SYN or a known broker
port says which end is the client; without them both ends are tried. On a Kafka port one plausible request is
believed, and a connection whose beginning was missed is taken for Kafka until nothing is found in it. On any
other port a request alone is not enough: a second one must follow it, or a response with its correlation id.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from kwsniff.config import Config
from kwsniff.net.reassembly import Gap, Run
from kwsniff.wire.chunks import overhead
from kwsniff.wire.plausible import (
    ANY_VERSION,
    REQUEST_HEADER,
    Versions,
    begins_segment,
    find_request,
    find_response,
    is_gssapi,
    is_request,
    is_tls,
    is_tls_refusal,
)

WAIT, KAFKA, TOKENS, TLS, OTHER = "wait", "kafka", "tokens", "tls", "other"
"""Verdicts; TOKENS is Kafka that begins with a raw GSSAPI token, as 0.9 clients may."""


DAMAGED_SEGMENTS = 8
"""Segments of a client on a Kafka port that are looked at if the first is no request."""


@dataclass(slots=True)
class Probe:
    """What a connection showed before it was known what it carries. Side 0 is end a, side 1 end b."""

    config: Config
    versions: Versions
    kafka_port: bool
    """At least one end has a Kafka port."""
    client: int
    """Side of the client, or -1 while unknown."""
    from_start: list[bool]
    """Whether each stream's first byte was captured."""
    held: list[tuple[int, Run | Gap]] = field(default_factory=list)
    first: list[bytes] = field(default_factory=lambda: [b"", b""])
    """First contiguous bytes of each stream."""
    starts: list[list[int]] = field(default_factory=lambda: [[], []])
    broken: list[bool] = field(default_factory=lambda: [False, False])
    size: int = 0
    by_port: int = -1
    """Side of the client as the ports say: the one that is on no Kafka port."""

    @property
    def buffered(self) -> int:
        """Bytes that what is held takes: its data is there twice."""
        return 2 * self.size + overhead(item for _, item in self.held if isinstance(item, Run))

    def feed(self, side: int, item: Run | Gap) -> str:
        """Hold what a stream delivered, and judge."""
        self.held.append((side, item))
        if isinstance(item, Gap):
            if not self.first[side]:
                self.from_start[side] = False
            else:
                self.broken[side] = True
        else:
            self.size += len(item.data)
            if not self.broken[side]:
                self.starts[side] += [start + len(self.first[side]) for start in item.starts]
                self.first[side] += item.data
            elif self.kafka_port and side == self.client and self._begins(item.data, item.starts) >= 0:
                self.from_start[side] = False  # what came before was damaged
                return KAFKA
        return self.judge()

    def judge(self, final: bool = False) -> str:
        """The verdict on what was held; `final` when no more will come."""
        if any(is_tls(data) and (final or not is_tls_refusal(data)) for data in self.first):
            return TLS if self.kafka_port else OTHER
        if 0 <= self.by_port != self.client >= 0 and not self._asks(self.client):
            if self._asks(self.by_port):
                self.client = self.by_port  # a flag was damaged
            elif not final and self.size <= self.config.detect_bytes:
                return WAIT
        sides = [self.client] if self.client >= 0 else [0, 1]
        verdicts = [self._judge_client(side, final) for side in sides]
        for side, verdict in zip(sides, verdicts, strict=True):
            if verdict in (KAFKA, TOKENS):
                self.client = side
                return verdict
        if all(verdict == OTHER for verdict in verdicts):
            return OTHER
        return OTHER if final or self.size > self.config.detect_bytes else WAIT

    def _judge_client(self, side: int, final: bool) -> str:
        """The verdict if `side` is the client."""
        data, limit = self.first[side], self.config.max_frame_bytes
        if self.from_start[side]:
            versions = ANY_VERSION if self.kafka_port else self.versions
            plausible = is_request(data, 0, len(data), versions, limit)
            if plausible is None and self.broken[side] and len(data) >= REQUEST_HEADER:
                plausible = True  # the snap length took the rest of the client id
            if plausible is None:
                return self._judge_silence(side, final)
            if not plausible:
                if self.kafka_port and is_gssapi(data):
                    return TOKENS
                return self._judge_damaged(side, final) if self.kafka_port else OTHER
            return KAFKA if self.kafka_port else self._judge_agreement(side, 0)
        if self.kafka_port and self.client >= 0:
            return KAFKA
        pos = find_request(data, 0, self.versions, limit)
        if is_request(data, pos, len(data), self.versions, limit) is not True:
            return WAIT
        return KAFKA if self.kafka_port else self._judge_agreement(side, pos)

    def _judge_damaged(self, side: int, final: bool) -> str:
        """On a Kafka port the first bytes are no request: perhaps they were damaged, and another follows with
        a segment of its own."""
        start = self._begins(self.first[side], self.starts[side])
        if start >= 0:
            self.from_start[side] = start == 0
            return KAFKA
        return OTHER if final or len(self.starts[side]) > DAMAGED_SEGMENTS else WAIT

    def _begins(self, data: bytes, starts: list[int]) -> int:
        """Where a segment surely begins with a request; -1 if none does."""
        limit = self.config.max_frame_bytes
        for start, beyond in pairwise([*starts, len(data)]):
            if begins_segment(data, start, beyond, self.versions, limit):
                return start
        return -1

    def _asks(self, side: int) -> bool:
        """Whether one of the first segments of a side begins with a request that names its client. A response
        alone may look like a request without name."""
        data, limit = self.first[side], self.config.max_frame_bytes
        return any(
            data[start + 12 : start + 13] in (b"\0", b"\1", b"\2")
            and data[start + 12 : start + 14] != b"\0\0"
            and is_request(data, start, len(data), self.versions, limit)
            for start in self.starts[side][:DAMAGED_SEGMENTS]
        )

    def _judge_silence(self, side: int, final: bool) -> str:
        """The client has said too little. A broker never speaks first."""
        if self.first[1 - side] and not self.first[side] and not self.broken[side]:
            half_captured = self.size > 256 or final
            return KAFKA if self.kafka_port and half_captured else WAIT
        return WAIT

    def _judge_agreement(self, side: int, pos: int) -> str:
        """Whether a second request or the response bears out the request at `pos`."""
        data, limit = self.first[side], self.config.max_frame_bytes
        after = pos + 4 + int.from_bytes(data[pos : pos + 4])
        if is_request(data, after, len(data), self.versions, limit):
            return KAFKA
        if after < len(data) and is_request(data, after, len(data), self.versions, limit) is False:
            return OTHER
        asked = int.from_bytes(data[pos + 8 : pos + 12], signed=True)
        answer, other = self.first[1 - side], self.starts[1 - side]
        if len(answer) >= 8 and find_response(answer, 0, other, [asked], limit)[1] == 0:
            return KAFKA
        return WAIT
