"""What the two streams of a connection carry: judging it, cutting frames, and the conversation they make.

Theory of operation. While the content is not judged, a `Probe` holds what the streams deliver. Its verdict
settles the stage; if it is Kafka, the held bytes go to the framers, as does all that follows, and the frames
go to the conversation. Anything else is dropped and only counted by the connection.

Invariants: side 0 is end a of the connection and 1 is end b; requests are `framers[0]`, responses
`framers[1]`; `probe` is set exactly while `stage` is WAIT.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise

from kwsniff.config import Config
from kwsniff.engine.probe import KAFKA, OTHER, TLS, TOKENS, WAIT, Probe
from kwsniff.events import Anomaly, Call
from kwsniff.net.reassembly import Gap, Run
from kwsniff.wire.conversation import Conversation
from kwsniff.wire.framer import Frame, Framer
from kwsniff.wire.plausible import (
    Versions,
    begins_segment,
    fills,
    find_request,
    find_response,
    is_request,
    is_tls,
    is_tls_refusal,
)
from kwsniff.wire.succession import UNKNOWN, comes_next, correlation_id

MAX_ASIDE = 1000
"""Requests taken aside that are remembered."""

Note = Callable[..., None]
"""Reports an anomaly: code, detail and, unless it is the latest one, the packet."""


class Exchange:
    """State of one connection's content; see the module's head."""

    __slots__ = (
        "_sinks", "aside", "client", "config", "conversation", "framers", "kafka_port", "note", "probe",
        "spoken", "stage", "versions",
    )  # fmt: skip
    conversation: Conversation
    framers: tuple[Framer, ...]

    def __init__(
        self,
        config: Config,
        number: int,
        calls: list[Call],
        anomalies: list[Anomaly],
        versions: Versions,
        kafka_ports: tuple[bool, bool],
        note: Note,
    ) -> None:
        """`kafka_ports` says of each side whether it is on a Kafka port."""
        self.config, self.versions, self.note = config, versions, note
        self.kafka_port = any(kafka_ports)
        # The end that is not on a Kafka port is the client; if both are, or none, something else decides.
        self.client = kafka_ports.index(False) if kafka_ports.count(True) == 1 else -1
        self.stage = WAIT
        self.probe: Probe | None = Probe(
            config, versions, self.kafka_port, self.client, [False, False], by_port=self.client
        )
        self._sinks = (number, calls, anomalies)
        self.aside: set[int] = set()
        """Correlation ids of requests that were taken aside and may come once more in their place."""
        self.spoken = [False, False]
        """Whether each side said anything that was captured."""

    def __getattr__(self, name: str) -> object:
        """Make `framers` and `conversation` when they are first asked for: a connection that never says
        anything, or nothing of Kafka, goes without."""
        if name == "framers":
            self.framers = (
                Framer(self.config, self._find_request, begins=self._begins),
                Framer(self.config, self._find_response),
            )
            return self.framers
        if name == "conversation":
            self.conversation = Conversation(self.config, *self._sinks, self.versions)
            return self.conversation
        raise AttributeError(name)

    def __getstate__(self) -> tuple[None, dict[str, object]]:
        """What was made so far: asking for the rest would make it."""
        held = {}
        for name in self.__slots__:
            with suppress(AttributeError):
                held[name] = object.__getattribute__(self, name)
        return None, held

    @property
    def is_kafka(self) -> bool:
        """Judged to be Kafka."""
        return self.stage in (KAFKA, TOKENS)

    @property
    def ignored(self) -> bool:
        """Judged to be something else, of which only packets and bytes are counted."""
        return self.stage in (OTHER, TLS)

    def synchronised(self, side: int) -> bool:
        """Whether it is known where the frames of a side begin and end."""
        return self.framers[side ^ self.client].synchronised

    def begins(self, client: int, from_start: list[bool]) -> None:
        """Note a SYN: who the client is, and whose first byte the capture holds."""
        if self.probe is not None:
            self.client = self.probe.client = client
            self.probe.from_start = from_start

    def deliver(self, side: int, items: list[Run | Gap]) -> None:
        """Take what the stream of one side delivered."""
        for item in items:
            self.spoken[side] = True
            if self.is_kafka and isinstance(item, Gap) and item.packet < 0:
                who = "client" if side == self.client else "broker"
                self.note("gap", f"{item.length} bytes from the {who}")
            if self.probe is None:
                self._to_framer(side, item)
            elif (verdict := self.probe.feed(side, item)) != WAIT:
                self._decide(verdict)

    def deliver_both(self, runs: list[Run | None]) -> None:
        """Take a run of either side at once; its frames are treated in the order of capture."""
        frames: list[list[Frame]] = [[], []]
        for side, run in enumerate(runs):
            if run is not None:
                self.spoken[side] = True
                frames[side ^ self.client] = self.framers[side ^ self.client].feed(run)
        if self.aside:
            frames[0] = self._without_those_aside(frames[0])
        self.conversation.feed(*frames)
        self._report_framing()

    def begins_anew(self, side: int, data: bytes, continues: bool) -> bool:
        """Whether a segment that fits nowhere into its stream shows by what it holds that it is no copy of an
        older one: a request that comes next, or the response to one that waits. Its sequence number, or that
        by which the stream was placed, was damaged. `continues`: it begins where the last such one ended."""
        if self.probe is not None:
            if not self.kafka_port or side != self.client or data in self.probe.first[side]:
                return False
            return self._begins(data, 0, len(data))
        if not self.is_kafka:
            return False
        if side != self.client:
            waiting = self.conversation.outstanding.requests
            return fills(data) and int.from_bytes(data[4:8], signed=True) in waiting
        return self._begins(data, 0, len(data)) if continues else self._comes_next(data)

    def goes_on(self, side: int, data: bytes) -> bool:
        """Whether a segment after the end holds the client's next request: there was no end."""
        return self.is_kafka and side == self.client and self._comes_next(data)

    def _comes_next(self, data: bytes) -> bool:
        latest = self.framers[0].newest
        if not self._begins(data, 0, len(data)):
            return False
        return latest == UNKNOWN or comes_next(correlation_id(data, 0, len(data)), latest)

    def deliver_aside(self, side: int, run: Run) -> None:
        """Take the frames of a segment that has no place in its stream."""
        frames = self.framers[side ^ self.client].aside(run)
        if side != self.client:
            self.conversation.feed([], frames)
            return
        self.aside |= {correlation_id(frame.data, frame.start, frame.end) for frame in frames}
        if len(self.aside) > MAX_ASIDE:
            self.aside = set(sorted(self.aside)[-MAX_ASIDE // 2 :])
        self.conversation.feed(frames, [])

    def _without_those_aside(self, frames: list[Frame]) -> list[Frame]:
        """Requests that were not taken aside already: an undamaged copy of the segment may come later."""
        left = []
        for frame in frames:
            found = correlation_id(frame.data, frame.start, frame.end)
            if found not in self.aside:
                left.append(frame)
            self.aside = {each for each in self.aside if each > found}
        return left

    def lost_tail(self, side: int) -> None:
        """Bytes at the end of a side's stream were acknowledged but never captured."""
        if side != self.client:
            self.conversation.response_gap = True

    def close(self, reason: str, order: int) -> None:
        """The connection is over, for one of UNANSWERED_REASONS."""
        if self.probe is not None:
            self._decide(self.probe.judge(final=True))
        if self.is_kafka:
            requests, responses = (framer.flush() for framer in self.framers)
            if unfinished := _unfinished(requests, responses):
                self.note("frame_incomplete", unfinished)
            self._report_framing()
            self.conversation.feed(requests, responses)
            self.conversation.end(reason, order)

    def settle(self) -> None:
        """At the end: what was taken for Kafka because of its port, but held no frame, was none."""
        if self.is_kafka and not any(framer.counters.frames for framer in self.framers):
            self.stage = OTHER
            if self.kafka_port and any(self.spoken):
                self.note("not_kafka", "no Kafka frame was found")

    def release(self) -> None:
        """Let go of what refers back to here or to the connection, so that both are freed at once."""
        self.framers, self.probe, self.note = (), None, _silent
        with suppress(AttributeError):
            del self.conversation

    @property
    def buffered(self) -> int:
        """Bytes that what is held takes."""
        if self.probe is not None:
            return self.probe.buffered
        if not self.is_kafka:
            return 0
        requests, responses = self.framers
        return requests.buffered + responses.buffered + self.conversation.buffered

    @property
    def load(self) -> int:
        """Requests that wait for a response, what they name, and those that want none."""
        return self.conversation.load if self.is_kafka else 0

    def drop_buffers(self) -> None:
        """Give up the bytes of frames in progress and of responses without request, to keep within the limit
        of all connections."""
        if self.probe is not None:
            self._decide(self.probe.judge(final=True))
        if self.is_kafka:
            for framer in self.framers:
                framer.drop()
            self.conversation.drop_early()

    def _decide(self, verdict: str) -> None:
        probe = self.probe
        assert probe is not None
        self.stage, self.probe = verdict, None
        if verdict in (KAFKA, TOKENS):
            self.client = probe.client
            self.conversation.raw_tokens = verdict == TOKENS
            for side in (0, 1):
                framer = self.framers[side ^ self.client]
                framer.synchronised = framer.tokens = probe.from_start[side]
            for side, item in probe.held:
                self._to_framer(side, item)
        elif verdict == OTHER and self.kafka_port and any(self.spoken) and any(probe.from_start):
            self.note("not_kafka", "the first bytes are no Kafka request")

    def _to_framer(self, side: int, item: Run | Gap) -> None:
        if not self.is_kafka:
            return
        framer = self.framers[side ^ self.client]
        if isinstance(item, Gap):
            if side != self.client:
                self.conversation.response_gap = True
            frames = framer.gap(item.length, item.packet, item.time, item.order)
        else:
            unknown = not framer.counters.frames and not framer.synchronised
            if unknown and is_tls(item.data) and (side == self.client or not is_tls_refusal(item.data)):
                self.stage = TLS
                return
            found = framer.counters.resynchronisations
            frames = framer.feed(item)
            if side != self.client and framer.counters.resynchronisations > found:
                self.conversation.response_gap = True  # responses may have been among what was skipped
        if side == self.client:
            self.conversation.feed(self._without_those_aside(frames) if self.aside else frames, [])
        else:
            self.conversation.feed([], frames)
        self._report_framing()

    def _begins(self, data: bytes, pos: int, end: int) -> bool:
        return begins_segment(data, pos, end, self.versions, self.config.max_frame_bytes)

    def _find_request(self, data: bytes, pos: int, starts: list[int]) -> tuple[int, int]:
        limit = self.config.max_frame_bytes
        found = find_request(data, pos, self.versions, limit)
        sure = is_request(data, found, len(data), self.versions, limit)
        for start, beyond in pairwise([*starts[bisect_left(starts, pos) :], len(data)]):
            if sure and start >= found:
                break
            if self._begins(data, start, beyond):
                return start, 0  # its client id is damaged, or what else might begin a request is in its way
        return found, 0 if sure else len(data) - found + 1

    def _find_response(self, data: bytes, pos: int, starts: list[int]) -> tuple[int, int]:
        client_seen = self.spoken[self.client]
        expected = self.conversation.outstanding.requests if client_seen else None
        return find_response(data, pos, starts, expected, self.config.max_frame_bytes)

    def _report_framing(self) -> None:
        for name, framer in zip(("request", "response"), self.framers, strict=True):
            if framer.news:
                for code, detail, packet in framer.news:
                    self.note(code, f"{detail} of the {name} stream", packet)
                framer.news.clear()


def _unfinished(requests: list[Frame], responses: list[Frame]) -> str:
    named = [*(("request", frame) for frame in requests), *(("response", frame) for frame in responses)]
    return "; ".join(
        f"{name} of {f.size} bytes, {f.end - f.start} captured"
        for name, f in named
        if f.end - f.start < f.size
    )


def _silent(code: str, detail: str, packet: int | None = None) -> None:
    """Nobody is there to hear of it any more."""
