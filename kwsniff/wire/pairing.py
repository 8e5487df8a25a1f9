"""Requests that wait for their responses, by correlation id, first in first out.

A broker answers the requests of one connection in the order they came (protocol guide, "Network"), so the
oldest one is expected; but the correlation id decides, because a capture may have lost either side.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from kwsniff.wire.bodies import Body, Codec
from kwsniff.wire.framer import Frame

TEXT_UNIT, JSON_UNIT = 256, 512
"""Bytes of texts, and of a body kept as JSON, that count as much as one topic."""
ROOMY = 64
"""Places of a table that are not worth giving back."""


class Request(NamedTuple):
    """A request as it waits: without its bytes, which may be large."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    order: int
    first_time: int
    last_time: int
    size: int
    packet: int
    in_flight: int
    status: str
    """ok, truncated or undecoded."""
    codec: Codec | None
    body: Body | None


class EarlyResponse(NamedTuple):
    """A response that was captured before any request it could answer."""

    correlation_id: int
    frame: Frame


@dataclass(slots=True)
class Outstanding:
    """The waiting requests of one connection, oldest first."""

    requests: OrderedDict[int, Request] = field(default_factory=OrderedDict)
    """An OrderedDict, because a plain one looks at every place that was emptied to find its first entry."""
    repeated: dict[int, deque[Request]] = field(default_factory=dict)
    """Further requests with a correlation id that waits already."""
    count: int = 0
    most: int = 0
    """Requests for which the table has room: a dict keeps that of all it ever held at once."""

    def __len__(self) -> int:
        return self.count

    def load(self) -> int:
        """Requests that wait, topics and partitions they name, their texts and bodies: what they take."""
        load = self.count + sum([_load(request) for request in self.requests.values()])
        for more in self.repeated.values():
            load += sum([_load(request) for request in more])
        return load

    def add(self, request: Request) -> bool:
        """Let a request wait; False if its correlation id waits already."""
        self.count += 1
        if request.correlation_id not in self.requests:
            self.requests[request.correlation_id] = request
            return True
        self.repeated.setdefault(request.correlation_id, deque()).append(request)
        return False

    def oldest(self) -> Request | None:
        """The request that should be answered next."""
        return next(iter(self.requests.values()), None)

    def take(self, correlation_id: int) -> Request | None:
        """Remove and return the oldest request with this correlation id."""
        waiting = len(self.requests)
        request = self.requests.pop(correlation_id, None)
        if request is None:
            return None
        self.count -= 1
        if waiting > self.most:
            self.most = waiting
        elif waiting * 4 < self.most > ROOMY:
            self.requests, self.most = OrderedDict(self.requests), waiting
        if self.repeated:
            more = self.repeated.get(correlation_id)
            if more:
                self.requests[correlation_id] = more.popleft()
            if not more:
                self.repeated.pop(correlation_id, None)
        return request

    def take_older(self, order: int) -> Iterator[Request]:
        """Remove and yield, oldest first, the requests sent before the one of this order."""
        while (request := self.oldest()) is not None and request.order < order:
            taken = self.take(request.correlation_id)
            assert taken is not None
            yield taken


def _load(request: Request) -> int:
    """What a request takes besides itself."""
    body = request.body
    if body is None:
        return _units(request.client_id) if request.size > TEXT_UNIT else 0
    facts = body.facts
    load = len(facts.partitions or ()) + len(facts.topics or ()) + _units(body.json, JSON_UNIT)
    if request.size > TEXT_UNIT:  # no text is longer than its request
        for text in (request.client_id, facts.group_id, facts.member_id, facts.transactional_id):
            load += _units(text)
        load += sum([_units(topic) for topic in facts.topics or ()])
        load += request.size // TEXT_UNIT if facts.extra else 0
    return load


def _units(text: str | None, unit: int = TEXT_UNIT) -> int:
    if not text:
        return 0
    # One character beyond ASCII may make each take four bytes.
    return (len(text) if text.isascii() else 4 * len(text)) // unit
