"""Which connections a network carries: every kind of traffic that has been told wrong, drawn from a seed."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.netem.kafka import Message, Writer
from tests.netem.talks import Nap, Talk

FIRST_PORT = 40_000
SMALL = ("versions", "heartbeat", "metadata", "commit", "offsets", "produce", "produce_unanswered", "fetch")


def identifiers(rng: random.Random, count: int) -> list[int]:
    """Correlation ids: rising from 0 or later, falling, or nearly rising, or any."""
    start = rng.choice([0, 1, rng.randrange(20_000), rng.randrange(1 << 30), (1 << 31) - count - 1])
    made = list(range(start, start + count))
    order = rng.choice(["rising", "rising", "falling", "near", "any"])
    if order == "falling":
        made.reverse()
    elif order == "near":
        made.sort(key=lambda number: number + rng.random() * 6)
    elif order == "any":
        made = [rng.getrandbits(31) for _ in made]
    return made


class Population:
    """Talks in chains: those of a chain use the same port, one after the other."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(f"population-{seed}")
        self.port = FIRST_PORT

    def chains(self, kinds: tuple[str, ...] = ()) -> list[list[Talk]]:
        made = []
        for kind in kinds or KINDS:
            self.port += 1
            made.append(KINDS[kind](self))
        return made

    def messages(self, count: int, *kinds: str, **sizes: int) -> list[Message]:
        name = self.rng.choice(["app", "tester", "consumer-billing-1", "", None])
        writer = Writer(self.rng, name)
        numbers = identifiers(self.rng, count)
        return [writer.message(self.rng.choice(kinds or SMALL), number, **sizes) for number in numbers]

    def talk(self, kind: str, messages: list[Message], **how: object) -> Talk:
        chunks = self.rng.choice([None, (1, 40), (1, 3000), (1000, 1448), (5000, 60_000)])
        given: dict[str, object] = {
            "depth": self.rng.choice([1, 5, 50, 10_000]),
            "chunks": chunks,
            "nodelay": self.rng.random() < 0.7,
        }
        if chunks == (1, 40) and sum(len(message.request) for message in messages) > 100_000:
            given["chunks"] = (500, 3000)
        return Talk(kind, self.port, messages, self.rng.getrandbits(32), **(given | how))  # type: ignore[arg-type]

    def pingpong(self) -> list[Talk]:
        return [self.talk("pingpong", self.messages(60), depth=1)]

    def pipelined(self) -> list[Talk]:
        return [self.talk("pipelined", self.messages(150), depth=10_000)]

    def commits(self) -> list[Talk]:
        """Asynchronous commits of a group of hundreds of partitions."""
        return [
            self.talk(
                "commits", self.messages(60, "commit", "commit", "heartbeat"), depth=self.rng.choice([5, 99])
            )
        ]

    def rows(self) -> list[Talk]:
        return [self.talk("rows", self.messages(80, "offsets", "commit", "fetch"), chunks=(1, 3000))]

    def values(self) -> list[Talk]:
        """Kafka requests as record values, produced and fetched."""
        return [self.talk("values", self.messages(60, "produce", "produce_unanswered", "fetch"))]

    def tiny(self) -> list[Talk]:
        """A call of send() for every few bytes: length prefixes by themselves."""
        return [self.talk("tiny", self.messages(120, "heartbeat", "versions"), chunks=(1, 7), nodelay=True)]

    def deep_requests(self) -> list[Talk]:
        """Megabytes in flight to the broker."""
        messages = self.messages(60, "produce", size=60_000)
        return [self.talk("deep requests", messages, depth=10_000, chunks=None)]

    def deep_responses(self) -> list[Talk]:
        messages = self.messages(60, "fetch", size=60_000)
        return [self.talk("deep responses", messages, depth=10_000, chunks=None)]

    def slow_reader(self) -> list[Talk]:
        """A client that stops reading: zero windows and their probes."""
        nap = (Nap(self.rng.randrange(60_000), 1.5), None)
        messages = self.messages(25, "fetch", size=20_000)
        return [self.talk("slow reader", messages, depth=50, receive=(4096, 0), nap=nap)]

    def muted(self) -> list[Talk]:
        """A broker that stops reading."""
        nap = (None, Nap(self.rng.randrange(60_000), 1.5))
        messages = self.messages(25, "produce", "commit")
        return [self.talk("muted", messages, depth=50, receive=(0, 4096), nap=nap)]

    def silent(self) -> list[Talk]:
        """Silence long enough for keep-alives."""
        return [
            self.talk(
                "silent", self.messages(20), silence=(10, 1.6), keepalive=True, depth=self.rng.choice([1, 5])
            )
        ]

    def half_closed(self) -> list[Talk]:
        return [self.talk("half closed", self.messages(40), ending="half", depth=10_000)]

    def fast_open(self) -> list[Talk]:
        return [self.talk("fast open", self.messages(10), fast_open=True)]

    def resets(self) -> list[Talk]:
        ending = self.rng.choice(["client-reset", "broker-reset", "unread"])
        messages = self.messages(40)
        return [self.talk("resets", messages, ending=ending, stop=self.rng.randint(2, 35), depth=10_000)]

    def churn(self) -> list[Talk]:
        """Short connections from one port, within milliseconds of each other."""
        made = []
        for _ in range(6):
            ending = self.rng.choice(["broker", "broker", "client-reset", "broker-reset"])
            messages = self.messages(self.rng.randint(2, 12))
            stop = self.rng.randrange(1, len(messages))
            made.append(self.talk("churn", messages, ending=ending, stop=stop))
        return made

    def numbered(self) -> list[Talk]:
        """Connections from one port that say the same all over again."""
        messages = self.messages(8)
        return [self.talk("numbered", messages, ending="broker") for _ in range(4)]


KINDS: dict[str, Callable[[Population], list[Talk]]] = {
    "pingpong": Population.pingpong,
    "pipelined": Population.pipelined,
    "commits": Population.commits,
    "commits 2": Population.commits,
    "rows": Population.rows,
    "values": Population.values,
    "values 2": Population.values,
    "tiny": Population.tiny,
    "deep requests": Population.deep_requests,
    "deep responses": Population.deep_responses,
    "deep requests 2": Population.deep_requests,
    "deep responses 2": Population.deep_responses,
    "slow reader": Population.slow_reader,
    "muted": Population.muted,
    "silent": Population.silent,
    "half closed": Population.half_closed,
    "fast open": Population.fast_open,
    "resets": Population.resets,
    "resets 2": Population.resets,
    "resets 3": Population.resets,
    "churn": Population.churn,
    "churn 2": Population.churn,
    "numbered": Population.numbered,
}
