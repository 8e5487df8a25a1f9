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

JSON_UNIT = 512
"""Characters of a body kept as JSON that count as much as one topic."""


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

    def __len__(self) -> int:
        return self.count

    def load(self) -> int:
        """Requests that wait, what topics and partitions they name, and their bodies: what they take."""
        load = self.count
        for request in self.requests.values():
            if request.body is not None:
                facts = request.body.facts
                load += len(facts.partitions or ()) + len(facts.topics or ())
                load += len(request.body.json or "") // JSON_UNIT
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
        request = self.requests.pop(correlation_id, None)
        if request is None:
            return None
        self.count -= 1
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
