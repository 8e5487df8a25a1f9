"""What client and broker say to each other on one connection: frames in, calls and anomalies out.

Theory of operation. Frames of both directions arrive merged in the order in which they were completed. A
request is read at once, so that its bytes can be let go, and waits in `Outstanding`; a response takes the
request with its correlation id from there, is decoded by that request's API and version, and makes a call.
Pairing comes first and needs only the header: whatever is wrong with a body, the call has its latency.

Special cases, each a rule of the protocol and explained in `kwsniff.wire.quirks`: Produce with acks=0 makes
a call without response; SaslHandshake v0 is followed by tokens that are no messages; an early broker may
answer FindCoordinator with correlation id 0.

A request that a gap in the responses leaves unanswered is known to be lost as soon as a later one is
answered, because brokers answer in order.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from struct import Struct

from kwsniff.binary import DecodeError
from kwsniff.config import Config
from kwsniff.events import Anomaly, Call
from kwsniff.spec.facts import Facts
from kwsniff.wire import quirks
from kwsniff.wire.bodies import Body, Codec, codec_of, read, read_newer, skip_tags
from kwsniff.wire.framer import Frame
from kwsniff.wire.joining import joined_partitions, joined_topics, named_groups, record_sums
from kwsniff.wire.pairing import EarlyResponse, Outstanding, Request
from kwsniff.wire.plausible import Versions, is_request

_request_header = Struct(">hhi").unpack_from
_api = Struct(">hh").unpack_from
_int16 = Struct(">h").unpack_from
_int32 = Struct(">i").unpack_from

MAX_EARLY = 1000
MAX_NO_REPLY = 250
NO_REPLIES = 8
"""So many requests without reply are remembered in the room of one that waits."""
EARLY_COST = 300
"""Bytes charged for keeping a response without request, besides its own."""
MAX_CLIENT_IDS = 8
"""Client ids of a connection that are not decoded again each time, of up to ..."""
CLIENT_ID_BYTES = 256
MAX_TEXT = 512
"""Characters kept of what a client says of itself for the whole connection."""

_NO_FACTS = Facts(None, 0, None, None, None, None, None, None, None, None, None, None)


@dataclass(slots=True)
class Conversation:
    """State of one connection; see the module's head."""

    config: Config
    connection: int
    calls: list[Call]
    """Finished calls go here."""
    anomalies: list[Anomaly]
    versions: Versions
    outstanding: Outstanding = field(default_factory=Outstanding)
    early: list[EarlyResponse] = field(default_factory=list)
    no_reply: dict[int, None] = field(default_factory=dict)
    """Correlation ids of the latest requests that want no response: some brokers answer all the same."""
    client_ids: dict[bytes, str | None] = field(default_factory=dict)
    raw_tokens: bool = False
    """SASL tokens follow that are no Kafka messages."""
    raw_waiting: int = 0
    """Such tokens of the client without the broker's token yet."""
    response_gap: bool = False
    """Response bytes were lost since the last call."""
    mechanism: str | None = None
    user: str | None = None
    software_name: str | None = None
    software_version: str | None = None
    tokens: int = 0
    """SASL tokens that were read."""
    undecoded: int = 0
    requests_held: bool = False
    """Requests wait behind a hole in the client's stream, so their responses come first."""

    def feed(self, requests: list[Frame], responses: list[Frame]) -> None:
        """Take frames of both directions, each in stream order, and treat them in the order of capture."""
        if not responses:
            for frame in requests:
                self.request(frame)
            return
        waiting = iter(requests)
        request = next(waiting, None)
        for response in responses:
            while request is not None and request.order <= response.order:
                self.request(request)
                request = next(waiting, None)
            self.response(response)
        while request is not None:
            self.request(request)
            request = next(waiting, None)

    def request(self, frame: Frame) -> None:
        """Take a frame that the client sent."""
        if self.early:
            self._expire_early(frame.last_time)
        data, pos = frame.data, frame.start + 4
        if self.raw_tokens and not self._ends_tokens(frame):
            self._raw_token(data[pos : frame.end])
            return
        if frame.end - pos < 8:
            self._unreadable(frame, "request")
            return
        request, pos = self.opened(frame, self.outstanding.count)
        if request.api_key == quirks.PRODUCE and self._no_reply(request, data, pos, frame.end):
            self.unasked(request)
            if self.early:
                self._drop_early_reply(request.correlation_id)
        else:
            self._wait(request, frame)

    def opened(self, frame: Frame, in_flight: int) -> tuple[Request, int]:
        """Read a request of at least the first eight bytes of a header; also where its body begins."""
        data, pos = frame.data, frame.start + 4
        key, version, correlation_id = _request_header(data, pos)
        found = codec_of(key, version)
        known = None if isinstance(found, str) else found
        client_id, pos, status, body = self._read_request(frame, found, pos + 8)
        tells = known is None or known.tells_of_client
        if tells and body is not None and body.facts.extra:
            self._learn(body.facts.extra)
        request = Request(
            key, version, correlation_id, client_id, frame.order, frame.first_time, frame.last_time,
            frame.size, frame.packet, in_flight, status, known, body,
        )  # fmt: skip
        return request, pos

    def unasked(self, request: Request) -> None:
        """A request that wants no response is a whole call."""
        self._call(request, None, "no_reply_expected", request.order)
        self.remember_no_reply(request.correlation_id)

    def response(self, frame: Frame) -> None:
        """Take a frame that the broker sent."""
        if self.early:
            self._expire_early(frame.last_time)
        pos = frame.start + 4
        if self.raw_waiting and not self.outstanding.count:
            self.raw_waiting -= 1
            return
        if frame.end - pos < 4:
            self._unreadable(frame, "response")
            return
        correlation_id = _int32(frame.data, pos)[0]
        request = self._answered(correlation_id)
        if request is None:
            if correlation_id in self.no_reply:
                del self.no_reply[correlation_id]
                self._note(frame, "reply_to_acks_0", f"correlation id {correlation_id}")
            else:
                own = frame.data[frame.start : frame.end]  # what came along with it may be much more
                alone = frame._replace(data=own, start=0, end=len(own))
                self.early.append(EarlyResponse(correlation_id, alone))
            return
        if self.outstanding.count:
            self._check_order(request, frame)
        self.answer(request, frame)

    @property
    def load(self) -> int:
        """Requests that wait, what they name, and those that want no response."""
        waiting = self.outstanding.load() if self.outstanding.count else 0
        return waiting + len(self.no_reply) // NO_REPLIES

    @property
    def buffered(self) -> int:
        """Bytes that the responses without request take."""
        return sum([EARLY_COST + len(early.frame.data) for early in self.early]) if self.early else 0

    def drop_early(self) -> None:
        """Report every response without request as such: there is no room to wait on."""
        early, self.early = self.early, []
        for each in early:
            self.orphan(each)

    def give_up(self, order: int) -> None:
        """Report every request that waits as unanswered: there is no room to wait on."""
        self.no_reply.clear()
        reason = "gap_in_responses" if self.response_gap else "limit"
        while (request := self.outstanding.oldest()) is not None:
            self.outstanding.take(request.correlation_id)
            self._unanswered(request, reason, order)

    def tick(self, now: int, order: int) -> None:
        """Nothing later than `now` (nanoseconds since 1970) has been missed so far: report what by then has
        waited too long."""
        if self.early:
            self._expire_early(now)
        patience = self.config.request_timeout
        if patience is None or not self.outstanding.count:
            return
        reason = "gap_in_responses" if self.response_gap else "timeout"
        waited = [
            each for each in self.outstanding.requests.values() if now - each.last_time > patience * 1e9
        ]
        for request in waited:
            if now - request.last_time > (patience + _may_wait(request)) * 1e9:
                self.outstanding.take(request.correlation_id)
                self._unanswered(request, reason, order)

    def end(self, reason: str, order: int) -> None:
        """The connection is over: report what still waits. `reason` is one of UNANSWERED_REASONS."""
        self.drop_early()
        if self.response_gap and reason != "connection_reset":
            reason = "gap_in_responses"
        while (request := self.outstanding.oldest()) is not None:
            self.outstanding.take(request.correlation_id)
            self._unanswered(request, reason, order)

    def expected_ids(self) -> Iterable[int]:
        """Correlation ids that wait for a response."""
        return self.outstanding.requests.keys()

    # Requests

    def _read_request(
        self, frame: Frame, found: Codec | str, pos: int
    ) -> tuple[str | None, int, str, Body | None]:
        """Client id, position of the body, status and body of a request, as far as they can be read."""
        whole = frame.end - frame.start == frame.size
        status = "ok" if whole else "truncated"
        client_id = None
        origin = frame.start + 4
        try:
            if isinstance(found, str):
                asked = _api(frame.data, frame.start + 4)
                self._note(frame, found, "API key {}, version {}".format(*asked))
                if whole:
                    status = "undecoded"
                    self.undecoded += 1
                client_id, pos = self._client_id(frame.data, pos, frame.end)
                pos, body = read_newer(asked, "request", frame.data, pos, frame.end, self.config)
                return client_id, pos, status, body if whole else None
            if found.client_id:
                client_id, pos = self._client_id(frame.data, pos, frame.end)
            if found.flexible_request:
                pos = skip_tags(frame.data, pos, frame.end)
            origin = 0
            return client_id, pos, status, self._read(found, "request", frame, pos) if whole else None
        except DecodeError as error:
            if not isinstance(found, str):
                status = self._broken(frame, "request", status, error, origin)
            return client_id, pos, status, None

    def _client_id(self, data: bytes, pos: int, end: int) -> tuple[str | None, int]:
        if end - pos < 2:
            raise DecodeError("header_malformed", "client_id", pos)
        length = _int16(data, pos)[0]
        pos += 2
        if length < 0:
            return None, pos
        if pos + length > end:
            raise DecodeError("header_malformed", "client_id", pos)
        raw = data[pos : pos + length]
        text = self.client_ids.get(raw)
        if text is None:
            text = raw.decode("utf-8", "replace")
            if len(self.client_ids) < MAX_CLIENT_IDS and length <= CLIENT_ID_BYTES:
                self.client_ids[raw] = text
        return text, pos + length

    def _no_reply(self, request: Request, data: bytes, pos: int, end: int) -> bool:
        if request.body is not None:
            return request.body.facts.acks == 0
        return quirks.expects_no_reply(request.version, data, pos, end)

    def remember_no_reply(self, correlation_id: int) -> None:
        """Keep the correlation id of a request that wants no response, should a broker answer it."""
        self.no_reply[correlation_id] = None
        if len(self.no_reply) > MAX_NO_REPLY:
            del self.no_reply[next(iter(self.no_reply))]

    def _wait(self, request: Request, frame: Frame) -> None:
        if self.outstanding.count >= self.config.max_outstanding:
            oldest = self.outstanding.oldest()
            assert oldest is not None
            self.outstanding.take(oldest.correlation_id)
            self._note(frame, "outstanding_limit", f"correlation id {oldest.correlation_id} was given up")
            self._unanswered(oldest, "gap_in_responses" if self.response_gap else "limit", frame.order)
        if not self.outstanding.add(request):
            self._note(frame, "correlation_id_reused", f"correlation id {request.correlation_id}")
        if self.early:
            self._pair_early(request)

    def _learn(self, extra: dict[str, object]) -> None:
        """Keep what a request says of the client for the whole connection."""
        name = _short(extra.get("software_name"))
        if name is not None:
            self.software_name, self.software_version = name, _short(extra.get("software_version"))
        mechanism = _short(extra.get("mechanism"))
        if mechanism is not None:
            self.mechanism = mechanism
        token = extra.get("auth_bytes")
        self.tokens += isinstance(token, bytes)
        if isinstance(token, bytes) and self.user is None:
            self.user = _short(quirks.sasl_user(self.mechanism, token))

    # SASL tokens outside messages

    def _ends_tokens(self, frame: Frame) -> bool:
        if not is_request(frame.data, frame.start, frame.end, self.versions, self.config.max_frame_bytes):
            return False
        self.raw_tokens = False
        self.raw_waiting = 0
        return True

    def _raw_token(self, token: bytes) -> None:
        self.raw_waiting += 1
        self.tokens += 1
        if self.user is None:
            self.user = _short(quirks.sasl_user(self.mechanism, token))

    # Responses

    def _answered(self, correlation_id: int) -> Request | None:
        request = self.outstanding.take(correlation_id)
        if request is None and correlation_id == 0:
            oldest = self.outstanding.oldest()
            if oldest is not None and quirks.may_answer_with_zero(oldest.api_key, oldest.version):
                return self.outstanding.take(oldest.correlation_id)
        return request

    def _check_order(self, request: Request, frame: Frame) -> None:
        """Brokers answer in order, so an older request will not be answered, or order was broken."""
        oldest = self.outstanding.oldest()
        if oldest is None or oldest.order >= request.order:
            return
        if self.response_gap:
            for lost in self.outstanding.take_older(request.order):
                self._unanswered(lost, "gap_in_responses", frame.order)
            return
        detail = f"correlation id {request.correlation_id} before {oldest.correlation_id}"
        self._note(frame, "response_out_of_order", detail)

    def answer(self, request: Request, frame: Frame) -> None:
        """Make a call of a request, which waits no more, and its response."""
        status = request.status
        body: Body | None = None
        self.response_gap = False if not self.outstanding.count else self.response_gap
        if frame.end - frame.start < frame.size:
            status = "truncated"
        elif request.codec is not None:
            origin = frame.start + 4
            try:
                pos = frame.start + 8
                if request.codec.flexible_response:
                    pos = skip_tags(frame.data, pos, frame.end)
                origin = 0
                body = self._read(request.codec, "response", frame, pos)
                if body.facts.error_code and status == "ok":
                    status = "error"
                if quirks.starts_raw_tokens(request.api_key, request.version) and not body.facts.error_code:
                    self.raw_tokens = True
            except DecodeError as error:
                status = self._broken(frame, "response", status, error, origin)
        else:
            status, body = self._newer(request, frame)
        self._call(request, frame, status, frame.order, body)

    def _newer(self, request: Request, frame: Frame) -> tuple[str, Body | None]:
        """Status and body of the response to a request of unknown version. Of ApiVersions one answer is known
        for certain, whatever the version: that the broker does not know it either."""
        asked, pos = (request.api_key, request.version), frame.start + 8
        _, body = read_newer(asked, "response", frame.data, pos, frame.end, self.config)
        refused = request.api_key == quirks.API_VERSIONS and quirks.is_downgraded(
            request.version, frame.data, pos, frame.end
        )
        return "error" if refused and body is not None else request.status, body

    def _pair_early(self, request: Request) -> None:
        for index, early in enumerate(self.early):
            if early.correlation_id == request.correlation_id:
                del self.early[index]
                self.outstanding.take(request.correlation_id)
                if early.frame.first_time < request.last_time:
                    detail = f"correlation id {request.correlation_id}"
                    self._note(early.frame, "response_before_request", detail)
                self.answer(request, early.frame._replace(order=max(early.frame.order, request.order)))
                return

    def _drop_early_reply(self, correlation_id: int) -> None:
        """A broker's answer to acks=0 was captured before the request that wants none."""
        for index, early in enumerate(self.early):
            if early.correlation_id == correlation_id:
                del self.early[index], self.no_reply[correlation_id]
                self._note(early.frame, "reply_to_acks_0", f"correlation id {correlation_id}")
                return

    def _expire_early(self, now: int) -> None:
        if self.requests_held and len(self.early) <= MAX_EARLY:
            return
        limit = now - self.config.orphan_time * 1e9
        while self.early and (self.early[0].frame.last_time < limit or len(self.early) > MAX_EARLY):
            self.orphan(self.early.pop(0))

    def orphan(self, early: EarlyResponse) -> None:
        """Report a response whose request does not come any more."""
        frame = early.frame
        self.calls.append(
            Call(
                frame.order, self.connection, -1, -1, early.correlation_id, None, -1, -1, frame.first_time,
                frame.last_time, None, frame.size, -1, frame.packet, "orphan", None, None, None, None, None,
                None, None, None, None, None, None, None, None, None, self.software_name,
                self.software_version, None, None, None,
            )
        )  # fmt: skip

    def lost(self, request: Request, order: int) -> None:
        """Report a request whose response a gap has swallowed."""
        self._unanswered(request, "gap_in_responses", order)

    def _unanswered(self, request: Request, reason: str, order: int) -> None:
        self._call(request, None, "unanswered", order, None, reason)

    # Both

    def _read(self, known: Codec, direction: str, frame: Frame, pos: int) -> Body:
        body = read(known, direction, frame.data, pos, frame.end, self.config)
        for code, detail in body.anomalies:
            self._note(frame, code, detail)
        return body

    def _broken(self, frame: Frame, direction: str, status: str, error: DecodeError, origin: int) -> str:
        """Offsets count from the body's start, in a header from where it begins: `origin` in the buffer."""
        if status == "truncated":
            return status
        self.undecoded += 1
        where = f"{direction} {error.path}".rstrip()
        offset = error.offset - origin
        self._note(frame, error.code, f"{where}, offset {offset}" if error.offset >= 0 else where)
        return "undecoded"

    def _unreadable(self, frame: Frame, direction: str) -> None:
        self.undecoded += 1
        self._note(
            frame, "header_malformed", f"{direction} of {frame.size} bytes, {frame.end - frame.start} at hand"
        )

    def _note(self, frame: Frame, code: str, detail: str) -> None:
        time = frame.last_time if frame.last_time >= 0 else frame.first_time
        self.anomalies.append(Anomaly(frame.order, self.connection, code, detail, frame.packet, time))

    def _call(
        self,
        request: Request,
        frame: Frame | None,
        status: str,
        order: int,
        answer: Body | None = None,
        because: str | None = None,
    ) -> None:
        asked = request.body
        query = asked.facts if asked else _NO_FACTS
        reply = answer.facts if answer else _NO_FACTS
        topics, topic_ids = joined_topics(query, reply)
        partitions = joined_partitions(asked, answer)
        count, size = record_sums(asked, answer)
        group_id, transactional_id = named_groups(query, reply)
        self.calls.append(
            Call(
                order, self.connection, request.api_key, request.version, request.correlation_id,
                request.client_id, request.first_time, request.last_time,
                frame.first_time if frame else -1, frame.last_time if frame else -1,
                request.size, frame.size if frame else None,
                request.packet, frame.packet if frame else -1, status,
                reply.error_code, reply.error_count if reply.error_code is not None else None,
                reply.throttle_ms, query.acks, query.max_wait_ms,
                group_id, query.member_id or reply.member_id,
                transactional_id,
                topics, topic_ids, partitions, count, size, request.in_flight,
                self.software_name, self.software_version, because,
                asked.json if asked else None, answer.json if answer else None,
            )
        )  # fmt: skip


def _short(said: object) -> str | None:
    """What a client says of itself, no longer than is kept; None if it says nothing."""
    return said[:MAX_TEXT] if isinstance(said, str) else None


def _may_wait(request: Request) -> float:
    """Seconds for which the broker may hold the request before it answers."""
    facts = request.body.facts if request.body is not None else None
    asked = facts.max_wait_ms if facts is not None and facts.max_wait_ms is not None else 0
    return max(asked, 0) / 1e3 + quirks.held_by_broker(request.api_key)
