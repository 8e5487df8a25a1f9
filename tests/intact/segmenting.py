"""Conversations cut into segments as TCP allows, with all that a network and a capture do to them.

What is made is legal by construction, because two hosts and the path between them are simulated, not packets:

- A sender sends new bytes within the peer's window, sends again only what it does not know to be acknowledged
  (RFC 9293, section 3.8), and a frame only when what it answers or waits for has arrived.
- The capture is one point of the path. Each packet passes it on its way, or is lost before or behind it. Each
  ACK says what its receiver has in that moment, so none acknowledges what did not pass the capture before.
- Every byte arrives in the end, so every byte was captured: the connection is whole.
- What is forged never stands where a receiver would obey it (RFC 5961): an RST not at the next byte expected,
  a SYN never in place of an answer.
- Ports are used again when their connection is over at both ends; or where one end forgot it, after the
  challenge that makes the other forget it, too (RFC 9293, section 3.5.1).

So whatever the seed, the calls are those of the two streams.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.intact.conversations import Conversation, made, recorded
from tests.intact.packets import ACK, FIN, PSH, RST, SYN, URG

CLIENT, BROKER = 0, 1
WRAP = 1 << 32
SHUT, COPY = 256, 512
"""Of SEGMENTS: the packet tells a window of 0; the packet was captured before."""
MICROSECOND, MILLISECOND, SECOND = 10**3, 10**6, 10**9
BUSY = 40
"""Packets under way above which nothing comes on top: or there would be ever more of them."""
START = 1_700_000_000 * SECOND


class Captured(NamedTuple):
    """A packet as it was captured."""

    time: int
    side: int
    seq: int
    ack: int
    flags: int
    data: bytes


@dataclass(frozen=True)
class Style:
    """How likely what is. Probabilities are those of one packet or one move, unless it says otherwise."""

    sizes: tuple[int, ...] = (100, 536, 1448)
    """Greatest payloads, of which a connection takes one."""
    uneven: float = 0.3
    """New segments that are shorter than they could be."""
    window: int = 65_535
    acks: float = 0.5
    """Segments that are acknowledged at once."""
    lost_before: float = 0.0
    """Lost before they pass the capture."""
    lost_behind: float = 0.0
    shuffled_before: float = 0.0
    """Overtaken before the capture."""
    shuffled_behind: float = 0.0
    again: float = 0.0
    """Moves in which something is sent again, a range of any alignment."""
    beyond: float = 0.3
    """Of these, those that reach into new bytes."""
    copies: float = 0.0
    """Packets captured twice; in 1.0 all."""
    probes: float = 0.0
    """One byte sent into a closed window, and sent again when it opens."""
    keep_alives: float = 0.0
    garbage: bool = False
    """Keep-alives have a byte, and not that of the stream (RFC 9293, section 3.8.4)."""
    held: float = 0.0
    """Lost packets that are not sent again before there is nothing else to do."""
    patience: tuple[float, float] = (0.2, 0.4)
    """Seconds until something is sent again when nothing else moves."""
    forged: float = 0.0
    """Moves in which something arrives that the receiver does not obey: one of `forgeries`."""
    forgeries: tuple[str, ...] = ("rst", "rst inside", "syn", "syn-ack", "old syn", "bytes")
    openings: tuple[str, ...] = ("plain",)
    closings: tuple[str, ...] = ("none", "both")
    reused: float = 0.0
    """Connections after which the ports are used again."""
    wraps: float = 0.1
    """Streams that begin just before sequence number 2^32."""
    urgent: float = 0.0
    queues: float = 0.0
    """Packets that the capture has in the wrong order, as network cards with several queues do."""
    silence: float = 0.0
    """Hours without a packet, once a connection."""
    port: int = 9092
    only: tuple[str, ...] = ()
    """Kinds of conversation; empty: all but the large."""


ALL_OPENINGS = (
    "plain",
    "syn twice",
    "syn-ack twice",
    "simultaneous",
    "data in syn",
    "data in syn refused",
    "no ack",
)
ALL_CLOSINGS = (
    *("none", "client", "broker", "both", "one captured", "reset by client", "reset by broker"),
    "fin then reset",
)
PLAIN = Style()
STYLES: dict[str, Style] = {
    "plain": PLAIN,
    "sizes": Style(sizes=(1, 7, 31, 100, 536, 1448, 8948, 65_483), uneven=0.7),
    "again": Style(again=0.3, lost_behind=0.1, acks=0.3),
    "copies": Style(copies=1.0, sizes=(100, 1448, 8948)),
    "some copies": Style(copies=0.3, again=0.1, sizes=(100, 1448, 8948)),
    "lost": Style(lost_before=0.15, lost_behind=0.15, again=0.05),
    "shuffled": Style(shuffled_before=0.4, shuffled_behind=0.4, lost_before=0.05),
    "probes": Style(probes=0.2, again=0.1, sizes=(100, 1448, 8948)),
    "keep-alives": Style(keep_alives=0.2, again=0.05),
    "garbage": Style(keep_alives=0.2, garbage=True),
    "late": Style(lost_before=0.1, held=0.7, patience=(31.0, 90.0), sizes=(31, 100, 536)),
    "many behind": Style(lost_before=0.08, held=1.0, sizes=(7, 31, 100), acks=1.0),
    "flight": Style(
        window=6 << 20, sizes=(8948, 65_483), lost_before=0.02, held=0.9, again=0.02, only=("large",)
    ),
    "late flight": Style(
        window=6 << 20, sizes=(8948, 65_483), lost_before=0.02, held=1.0, patience=(31.0, 90.0),
        only=("large",),
    ),
    "forged rst": Style(forged=0.1, again=0.05, forgeries=("rst", "rst inside")),
    "forged syn": Style(forged=0.1, again=0.05, forgeries=("syn", "syn-ack", "old syn")),
    "old bytes": Style(forged=0.1, again=0.05, forgeries=("bytes",)),
    "openings": Style(openings=ALL_OPENINGS, lost_before=0.05, wraps=0.3),
    "closings": Style(closings=ALL_CLOSINGS, lost_before=0.05, wraps=0.3),
    "reused": Style(reused=1.0, closings=("none", *ALL_CLOSINGS), lost_before=0.02, again=0.02),
    "wraps": Style(wraps=1.0, lost_before=0.1, shuffled_before=0.2, again=0.1),
    "queues": Style(queues=0.1, again=0.05),
    "urgent": Style(urgent=0.2, again=0.1),
    "silence": Style(silence=1.0),
    "other port": Style(port=27_094, again=0.05, lost_before=0.05),
    "everything": Style(
        sizes=(7, 100, 536, 1448, 8948), uneven=0.5, acks=0.4, lost_before=0.06, lost_behind=0.06,
        shuffled_before=0.15, shuffled_behind=0.15, again=0.15, copies=0.05, probes=0.03, keep_alives=0.03,
        held=0.2, forged=0.03, openings=ALL_OPENINGS, closings=ALL_CLOSINGS, reused=0.2, wraps=0.3,
    ),
}  # fmt: skip


@dataclass
class Half:
    """One direction: what its sender and its receiver know."""

    data: bytes
    needs: Sequence[tuple[int, int]]
    isn: int
    fin: bool
    limit: int = 0
    """Up to here frames may be sent."""
    frame: int = 0
    sent: int = 0
    una: int = 0
    """What the sender knows to have arrived."""
    taken: int = 0
    """What the receiver has, without a hole."""
    apart: list[tuple[int, int]] = field(default_factory=list)
    """What it has behind holes."""
    before: list[Way] = field(default_factory=list)
    """Packets on their way to the capture, and from there on."""
    behind: list[Way] = field(default_factory=list)
    held: bool = False
    """Nothing is sent again until nothing else is to be done."""
    shut: bool = False
    """The receiver's window is closed."""

    @property
    def total(self) -> int:
        return len(self.data) + self.fin

    def seq(self, offset: int) -> int:
        return (self.isn + 1 + offset) % WRAP

    def arrive(self, start: int, end: int) -> bool:
        """Take a range; whether it was new."""
        if end <= self.taken:
            return False
        ranges = sorted([*self.apart, (max(start, self.taken), end)])
        self.apart = []
        for low, high in ranges:
            if low <= self.taken:
                self.taken = max(self.taken, high)
            else:
                self.apart.append((low, high))
        return True


class Way(NamedTuple):
    """A packet under way: a range of its stream, or bytes beside it."""

    start: int
    end: int
    ack: int
    """As an offset of the other stream."""
    flags: int
    beside: bytes | None = None
    """A keep-alive's byte; b"" for none."""
    refused: bool = False
    """The receiver has no room for it."""


class Simulation:
    """A connection, from its SYN on."""

    def __init__(
        self, rng: random.Random, style: Style, conversation: Conversation, isns: tuple[int, int], clock: int
    ) -> None:
        self.rng, self.style, self.clock = rng, style, clock
        self.out: list[Captured] = []
        self.closing = rng.choice(style.closings)
        ends = {
            "client": (CLIENT,),
            "broker": (BROKER,),
            "both": (CLIENT, BROKER),
            "fin then reset": (CLIENT,),
        }
        fins = ends.get(self.closing, ())
        self.halves = tuple(
            Half(conversation.streams[k], conversation.needs[k], isns[k], k in fins) for k in (CLIENT, BROKER)
        )
        longest = max(len(half.data) for half in self.halves)
        # Not more than some hundred packets a stream: the smaller ones come by `uneven`.
        self.size = max(rng.choice(style.sizes), longest // 250 if longest > 250 else 1)
        self.window = max(style.window, self.size)
        self.late_copies: list[tuple[int, Captured]] = []
        self.silent = rng.random() < style.silence
        self.copied_flag = rng.choice((0, COPY))

    def run(self) -> list[Captured]:
        silent, self.silent = self.silent, False  # no SYN waits an hour for its answer
        self._open()
        self.silent = silent
        while True:
            self._frames()
            if self._beside():
                continue
            moves = self._moves()
            if moves:
                move, k = self.rng.choice(moves)
                move(k)
            elif all(half.taken == half.total for half in self.halves):
                break
            else:
                self._wait()
        self._close()
        for _, packet in self.late_copies:
            self.out.append(packet._replace(time=self.clock))
        return self.out

    # What may happen

    def _moves(self) -> list[tuple[Callable[[int], None], int]]:
        moves: list[tuple[Callable[[int], None], int]] = []
        for k, half in enumerate(self.halves):
            if half.behind:
                moves.append((self._deliver, k))
            if half.before:
                moves.append((self._capture, k))
            if self._may_send(half):
                moves += [(self._send, k)] * 2
        return moves

    def _may_send(self, half: Half) -> bool:
        return half.sent < min(half.limit, half.una + self.window) and not half.shut

    def _frames(self) -> None:
        """Let senders go on with the frames whose needs have arrived."""
        for half, other in (self.halves, self.halves[::-1]):
            while half.frame < len(half.needs) and half.needs[half.frame][1] <= other.taken:
                half.limit = half.needs[half.frame][0]
                half.frame += 1
            if half.frame == len(half.needs):
                half.limit = half.total

    def _beside(self) -> bool:
        """What comes on top of the stream itself; whether something did."""
        rng, style = self.rng, self.style
        if sum(len(half.before) + len(half.behind) for half in self.halves) > BUSY:
            return False
        if style.again and rng.random() < style.again:
            k = rng.randrange(2)
            half = self.halves[k]
            if half.una < half.sent and not half.held and not half.shut:
                self._again(k, rng.choice((half.una, rng.randrange(half.una, half.sent))))
                return True
        if style.probes and rng.random() < style.probes:
            return self._probe(rng.randrange(2))
        if style.keep_alives and rng.random() < style.keep_alives:
            return self._keep_alive(rng.randrange(2))
        if style.forged and rng.random() < style.forged:
            self._forge(rng.randrange(2))
            return True
        return False

    # Senders

    def _way(self, k: int, start: int, end: int, **more: object) -> Way:
        flags = ACK | (PSH if self.rng.random() < 0.3 else 0)
        if self.style.urgent and self.rng.random() < self.style.urgent:
            flags |= URG
        return Way(start, end, self.halves[1 - k].taken, flags, **more)  # type: ignore[arg-type]

    def _send(self, k: int) -> None:
        half = self.halves[k]
        end = min(half.sent + self._length(), half.limit, half.una + self.window)
        half.before.append(self._way(k, half.sent, end))
        half.sent = end

    def _length(self) -> int:
        if self.rng.random() < self.style.uneven:
            return self.rng.choice(
                (1, 2, 3, 4, 5, self.rng.randint(1, self.size), self.rng.randint(1, self.size))
            )
        return self.size

    def _again(self, k: int, start: int) -> None:
        """Send something that was sent, from anywhere on; it may be longer or shorter than the first time."""
        half = self.halves[k]
        furthest = half.sent
        if self.rng.random() < self.style.beyond:
            furthest = max(min(half.limit, half.una + self.window), half.sent)
        end = min(start + self.rng.choice((self._length(), self.size, 4 * self.size)), furthest)
        half.before.append(self._way(k, start, max(end, start + 1)))
        half.sent = max(half.sent, end)

    def _probe(self, k: int) -> bool:
        """The window closes, a byte is sent nevertheless and refused; later the window opens."""
        half = self.halves[k]
        if not half.shut:
            if half.una == half.sent < half.limit and not half.before and not half.behind:
                half.shut = True
                self._acknowledge(k)
                return True
            return False
        if self.rng.random() < 0.4:
            half.shut = False
            self._acknowledge(k)
        else:
            half.before.append(self._way(k, half.sent, half.sent + 1, refused=True))
        return True

    def _keep_alive(self, k: int) -> bool:
        """A packet in front of the next byte, of none or one, which may be any."""
        half = self.halves[k]
        if half.una != half.sent or half.sent > len(half.data) or half.before or half.behind:
            return False
        byte = b""
        if self.rng.random() < 0.7:
            byte = b"\0" if self.style.garbage or not half.sent else half.data[half.sent - 1 : half.sent]
        half.before.append(self._way(k, half.sent - 1, half.sent - 1 + len(byte), beside=byte))
        return True

    def _acknowledge(self, k: int) -> None:
        """The receiver of a direction says what it has."""
        other = self.halves[1 - k]
        way = self._way(1 - k, other.sent, other.sent)
        flags = way.flags & ~URG | (SHUT if self.halves[k].shut else 0)
        other.before.append(way._replace(flags=flags))

    # The path

    def _capture(self, k: int) -> None:
        half, rng, style = self.halves[k], self.rng, self.style
        way = half.before.pop(self._which(half.before, style.shuffled_before))
        bare = way.start == way.end and way.beside is None
        lost = style.lost_before * (0.3 if bare else 1)
        if lost and rng.random() < lost:
            half.held = half.held or (not bare and rng.random() < style.held)
            return
        self._record(k, way)
        if not (style.lost_behind and rng.random() < style.lost_behind):
            half.behind.append(way)

    def _which(self, ways: list[Way], chance: float) -> int:
        return self.rng.randrange(len(ways)) if chance and self.rng.random() < chance else 0

    def _record(self, k: int, way: Way) -> None:
        half, other = self.halves[k], self.halves[1 - k]
        data, flags = way.beside, way.flags
        if data is None:
            data = half.data[way.start : way.end]
            if way.start < way.end > len(half.data):
                flags |= FIN
        self._put(k, half.seq(way.start), other.seq(way.ack), flags, data)

    def _put(self, k: int, seq: int, ack: int, flags: int, data: bytes = b"") -> None:
        self.clock += self.rng.randrange(1, 100) * MICROSECOND
        if self.silent and self.rng.random() < 0.02:
            self.silent = False
            self.clock += self.rng.randrange(700, 20_000) * SECOND
        packet = Captured(self.clock, k, seq, ack, flags, data)
        self.out.append(packet)
        if self.style.copies and self.rng.random() < self.style.copies:
            self.late_copies.append((len(self.out) + self.rng.choice((0, 0, 1, 3)), packet))
        while self.late_copies and self.late_copies[0][0] <= len(self.out):
            _, copy = self.late_copies.pop(0)
            self.clock += MICROSECOND
            self.out.append(copy._replace(time=self.clock, flags=copy.flags | self.copied_flag))

    def _deliver(self, k: int) -> None:
        half, other = self.halves[k], self.halves[1 - k]
        way = half.behind.pop(self._which(half.behind, self.style.shuffled_behind))
        if way.ack > other.una:
            other.una = way.ack
            other.sent = max(other.sent, way.ack)
        if way.start == way.end and way.beside is None:
            return
        if way.beside is not None or way.refused or half.shut:
            self._acknowledge(k)
            return
        new = half.arrive(way.start, way.end)
        if half.apart or not new or self.rng.random() < self.style.acks:
            self._acknowledge(k)

    def _wait(self) -> None:
        """Nothing moves: time goes by, and something is sent again."""
        self.clock += int(self.rng.uniform(*self.style.patience) * SECOND)
        stuck = [k for k, half in enumerate(self.halves) if half.una < half.sent]
        for k, half in enumerate(self.halves):
            if half.shut:
                half.shut = False
                self._acknowledge(k)
                return
            if half.held and self.rng.random() < 0.3:
                self._acknowledge(k)  # it asks once more for what it lacks
        assert stuck, "nothing to do"
        k = self.rng.choice(stuck)
        self.halves[k].held = False
        self._again(k, self.halves[k].una)

    # What is forged

    def _forge(self, k: int) -> None:
        """A packet as if of end `k` that the other end does not obey."""
        rng, half, other = self.rng, self.halves[k], self.halves[1 - k]
        if half.taken == half.total and other.taken == other.total:
            return
        window = self.window
        inside = rng.randint(half.sent + 2, half.una + window + 2) if half.sent < half.una + window else 0
        off = rng.randrange(rng.choice((1 << 16, 1 << 30)))
        outside = rng.choice((half.taken + window + 2 + off, half.taken - 2 - off))
        kind = rng.choice(self.style.forgeries)
        ack = other.seq(other.taken)
        if kind == "rst" or (kind == "rst inside" and inside <= half.sent + 1):
            self._put(k, half.seq(outside), ack, rng.choice((RST, RST | ACK)))
        elif kind == "rst inside":
            self._put(k, half.seq(inside), ack, RST)
            self._acknowledge(k)
        elif kind == "bytes":  # of an earlier connection
            # Further off than the largest window there can be (RFC 7323, section 2.3).
            far = half.taken + rng.choice((1, -1)) * ((1 << 30) + window + rng.randrange(1 << 20))
            self._put(k, half.seq(far), ack, ACK, rng.randbytes(rng.randint(1, 100)))
            self._acknowledge(k)
        elif kind == "old syn":
            answer = (other.seq(0), SYN | ACK) if k == BROKER else (0, SYN)
            self._put(k, half.isn, *answer)
            self._acknowledge(k)
        else:
            seq = rng.choice((half.seq(outside), half.seq(half.taken - 1), rng.randrange(WRAP)))
            if seq != half.isn:
                answer = ACK if kind == "syn-ack" else 0
                self._put(k, seq, rng.randrange(WRAP) if answer else 0, SYN | answer)
                self._acknowledge(k)

    # The beginning and the end

    def _open(self) -> None:
        client, broker = self.halves
        way = self.rng.choice(self.style.openings)
        c, b = client.isn, broker.isn
        c1, b1 = (c + 1) % WRAP, (b + 1) % WRAP
        self._frames()
        early = client.data[: min(client.limit, self._length())] if way.startswith("data") else b""
        self._put(CLIENT, c, 0, SYN, early)
        if way == "syn twice":
            self.clock += SECOND
            self._put(CLIENT, c, 0, SYN)
        if way == "simultaneous":
            self._put(BROKER, b, 0, SYN)
            self._put(CLIENT, c, b1, SYN | ACK)
            self._put(BROKER, b, c1, SYN | ACK)
            return
        if early:
            client.sent = len(early)
            if way == "data in syn":
                client.arrive(0, len(early))
        self._put(BROKER, b, client.seq(client.taken), SYN | ACK)
        if way == "syn-ack twice":
            self.clock += SECOND
            self._put(BROKER, b, c1, SYN | ACK)
        if way != "no ack":
            client.una = client.taken
            self._put(CLIENT, client.seq(client.sent), b1, ACK)

    def _close(self) -> None:
        client, broker = self.halves
        if self.rng.random() < 0.5:  # what is still under way
            for k, half in enumerate(self.halves):
                for way in half.before:
                    self._record(k, way)
        c, b = client.seq(client.total), broker.seq(broker.total)
        if self.closing == "one captured":
            # Both ends said that they are done; one packet of the four was not captured.
            k = self.rng.randrange(2)
            seq, ack = (c, b) if k == CLIENT else (b, c)
            self._put(k, seq, ack, FIN | ACK)
            self._put(1 - k, (ack + 1) % WRAP, (seq + 1) % WRAP, ACK)
        elif self.closing in ("reset by client", "fin then reset"):
            self._put(CLIENT, c, b, self.rng.choice((RST, RST | ACK)))
        elif self.closing == "reset by broker":
            self._put(BROKER, b, c, self.rng.choice((RST, RST | ACK)))


@dataclass
class Case:
    """All connections of one client port, one after the other."""

    seed: int
    style: str
    """With the seed it identifies the case."""
    conversations: list[str]
    closings: list[str]
    packets: list[Captured]
    forgotten: bool = False

    @property
    def port(self) -> int:
        return STYLES[self.style].port


def pool(style: Style) -> list[Conversation]:
    """The conversations that a style is for."""
    if style.only:
        return [one for name, one in made().items() if name.startswith(style.only)]
    return [one for name, one in (made() | recorded()).items() if not name.startswith("large")]


_POOLS: dict[Style, list[Conversation]] = {}


def case(name: str, seed: int) -> Case:
    """The case of a style and a seed, the same in every run."""
    style, rng = STYLES[name], random.Random(f"{name} {seed}")
    if style not in _POOLS:
        _POOLS[style] = pool(style)
    found = Case(seed, name, [], [], [])
    clock, isns = START + seed * 1000 * SECOND, (_isn(rng, style), _isn(rng, style))
    again = True
    while again:
        again = rng.random() < style.reused and len(found.conversations) < 3
        conversation = rng.choice(_POOLS[style])
        found.conversations.append(conversation.name)
        simulation = Simulation(rng, style, conversation, isns, clock)
        packets = simulation.run()
        found.closings.append(simulation.closing)
        found.packets += packets
        if again:
            isns, clock = _after(rng, style, simulation, found)
    if style.queues:
        found.packets = _queued(rng, style.queues, found.packets)
    return found


def _isn(rng: random.Random, style: Style) -> int:
    return WRAP - 1 - rng.randrange(3000) if rng.random() < style.wraps else rng.randrange(WRAP)


def _after(rng: random.Random, style: Style, last: Simulation, found: Case) -> tuple[tuple[int, int], int]:
    """Initial sequence numbers and time of a connection on the same ports."""
    beyond = (1, 2, rng.randrange(1, 70_000), rng.randrange(1, 1 << 24))
    near = [(half.seq(half.total) + rng.choice(beyond)) % WRAP for half in last.halves]
    isns = (near[0], rng.choice((near[1], _isn(rng, style))))
    clock = last.clock + rng.choice((MILLISECOND, SECOND, 70 * SECOND))
    client, broker = last.halves
    if last.closing in ("none", "client", "broker"):
        # The client forgot the connection, the broker didn't: it challenges the SYN, learns by an RST that
        # nobody is there, and takes the SYN when it comes again (RFC 9293, section 3.5.1, figure 9).
        c, b = client.seq(client.total), broker.seq(broker.total)
        for packet in (
            Captured(clock, CLIENT, isns[0], 0, SYN, b""),
            Captured(clock + MILLISECOND, BROKER, b, c, ACK, b""),
            Captured(clock + 2 * MILLISECOND, CLIENT, c, 0, RST, b""),
        ):
            found.packets.append(packet)
        found.forgotten = True
        clock += SECOND
    return isns, clock


def _queued(rng: random.Random, chance: float, packets: list[Captured]) -> list[Captured]:
    """Each packet may change its place with one that follows; times stay those of the places."""
    found = list(packets)
    for at in range(4, len(found) - 3):
        if rng.random() < chance:
            other = at + rng.randint(1, 3)
            found[at], found[other] = found[other], found[at]
    return [packet._replace(time=at.time) for packet, at in zip(found, packets, strict=True)]
