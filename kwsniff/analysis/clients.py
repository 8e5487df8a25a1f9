"""Who uses what: the clients with their addresses and software, the topics they write and read, and how.

A client is an address with a client id. It *produces* to the topics of its Produce requests and *consumes*
those it fetches; a broker that fetches as a replica *replicates*. What is not in EVENTS is taken from bodies
where they are there (`--full`): the isolation level.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from kwsniff.analysis.groups import APIS as GROUP_APIS
from kwsniff.analysis.tabular import (
    AnswerField,
    AnswerTable,
    Row,
    Seen,
    calls_of,
    columns,
    ends_of,
    exploded,
    grouped,
)

PRODUCE, FETCH, INIT_PRODUCER_ID, SHARE_FETCH = 0, 1, 22, 78
DOES = {PRODUCE: "produces", FETCH: "consumes", SHARE_FETCH: "consumes"}
REPLICA = re.compile(r"(broker-\d+-fetcher-\d+|ReplicaFetcherThread-\d+-\d+)$")
"""What a broker calls itself when it fetches from another; the second is the older name."""
ISOLATION = {0: "read_uncommitted", 1: "read_committed"}
ACKS = {-1: "all", 0: "0", 1: "1"}
MAX_CLIENTS = 100_000
MAX_CONNECTIONS = 200_000
BODIES_LOOKED_INTO = 20
"""Of each client: its settings hardly change."""

KEYS = ("client_ip", "client_id")
SOFTWARE = ("software_name", "software_version")
SETS = (
    *(*SOFTWARE, "user", "security", "group_id", "transactional_id", "rack", "acks", "api_key", "broker_ip"),
    *("broker_port", "connection"),
)
NEEDED = frozenset((*KEYS, *SETS)) | columns(
    "event time partitions topics topic_ids error_code request_bytes response_bytes"
)


@dataclass
class Use(Seen):
    """What a client does with one topic."""

    partitions: set[int] = field(default_factory=set)
    records: int | None = None
    record_bytes: int = 0
    parts: int = 0
    """Partitions in its requests: about as many batches."""
    codecs: set[str] = field(default_factory=set)


@dataclass
class Client(Seen):
    """What was seen of one client."""

    calls: int = 0
    errors: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0
    seen: dict[str, set[Any]] = field(default_factory=lambda: defaultdict(set))
    """Values of each column in SETS."""
    uses: dict[tuple[str, str], Use] = field(default_factory=dict)
    """By what it does and the topic."""
    isolation: set[str] = field(default_factory=set)
    bodies: int = 0

    def words(self, *names: str) -> str | None:
        """The values of some columns as one text, None without any of the first."""
        lists = [", ".join(sorted(self.seen[name])) for name in names]
        return " ".join(filter(None, lists)) if lists[0] else None


class Clients:
    """Takes EVENTS and gives the clients. `topic`: only uses of this one are told."""

    def __init__(self, topic: str | None = None, *, full: bool = False) -> None:
        self.needs = NEEDED | {"request"} if full else NEEDED
        self._topic = topic
        self._full = full
        self._clients: dict[tuple[str | None, str | None], Client] = {}
        self._owners: dict[str, Client] = {}
        self._beyond = 0

    def take(self, batch: pa.RecordBatch) -> None:
        calls = calls_of(batch)
        self._count(calls)
        of_groups = pc.is_in(calls["api_key"], pa.array(GROUP_APIS, pa.int32()))
        of_groups = pc.and_(pc.fill_null(of_groups, False), pc.is_valid(calls["error_code"]))
        for name in SETS:
            self._learn(calls.filter(of_groups) if name == "group_id" else calls, name)
        self._take_uses(calls)
        if self._full:
            self._look_into(calls)
        self._take_ends(ends_of(batch))

    def _client(self, row: Row) -> Client | None:
        key = (row["client_ip"], row["client_id"])
        found = self._clients.get(key)
        if found is None and len(self._clients) < MAX_CLIENTS:
            found = self._clients[key] = Client()
        return found

    def _count(self, calls: pa.RecordBatch) -> None:
        failed = pc.fill_null(pc.not_equal(calls["error_code"], 0), False).cast(pa.int64())
        calls = calls.append_column("failed", failed)
        sums = (
            ("time", "min"), ("time", "max"), ("event", "count"), ("failed", "sum"),
            ("request_bytes", "sum"), ("response_bytes", "sum"),
        )  # fmt: skip
        for row in grouped(calls, KEYS, sums):
            client = self._client(row)
            if client is None:
                self._beyond += row["event_count"]
                continue
            client.calls += row["event_count"]
            client.errors += row["failed_sum"]
            client.sent_bytes += row["request_bytes_sum"] or 0
            client.received_bytes += row["response_bytes_sum"] or 0
            client.see(row["time_min"], row["time_max"])

    def _learn(self, calls: pa.RecordBatch, name: str) -> None:
        if calls[name].null_count == len(calls):
            return
        for row in grouped(calls, (*KEYS, name)):
            client, value = self._client(row), row[name]
            if client is not None and value is not None:
                client.seen[name].add(value)
                if name == "connection" and len(self._owners) < MAX_CONNECTIONS:
                    self._owners[value] = client

    def _take_uses(self, calls: pa.RecordBatch) -> None:
        fields = ("topic", "partition", "records", "bytes", "codec")
        parts = exploded(calls, "partitions", fields, (*KEYS, "api_key", "time"))
        sums = (
            ("records", "sum"), ("bytes", "sum"), ("partition", "distinct"), ("codec", "distinct"),
            ("time", "min"), ("time", "max"), ("topic", "count"),
        )  # fmt: skip
        for row in grouped(parts, (*KEYS, "api_key", "topic"), sums):
            client = self._client(row)
            if client is None or row["api_key"] not in DOES or row["topic"] is None:
                continue
            use = client.uses.setdefault((_does(row), row["topic"]), Use())
            if row["records_sum"] is not None:
                use.records = (use.records or 0) + row["records_sum"]
            use.record_bytes += row["bytes_sum"] or 0
            use.parts += row["topic_count"]
            use.partitions.update(row["partition_distinct"])
            use.codecs.update(filter(None, row["codec_distinct"]))
            use.see(row["time_min"], row["time_max"])

    def _look_into(self, calls: pa.RecordBatch) -> None:
        fetches = calls.filter(pc.equal(calls["api_key"], FETCH)).select([*KEYS, "request"])
        for row in fetches.to_pylist():
            client = self._client(row)
            if client is None or row["request"] is None or client.bodies >= BODIES_LOOKED_INTO:
                continue
            client.bodies += 1
            level = orjson.loads(row["request"]).get("isolation_level")
            if level is not None:
                client.isolation.add(ISOLATION.get(level, str(level)))

    def _take_ends(self, ends: pa.RecordBatch) -> None:
        for row in ends.select(["connection", "user", "security"]).to_pylist():
            client = self._owners.get(row["connection"])
            if client is not None:
                for name in ("user", "security"):
                    if row[name] is not None:
                        client.seen[name].add(row[name])

    def tables(self) -> list[AnswerTable]:
        """Clients by their bytes, what each does with each topic, and their settings."""
        found = sorted(
            self._clients.items(),
            key=lambda item: (-(item[1].sent_bytes + item[1].received_bytes), str(item[0])),
        )
        uses: list[Row] = [row for key, client in found for row in self._use_rows(key, client)]
        if self._topic is not None:
            users = {(row["address"], row["client"]) for row in uses}
            found = [item for item in found if item[0] in users]
        settings = [_settings_row(*item) for item in found]
        settings = [row for row in settings if row["acks"] or row["isolation"] or row["rack"]]
        return [
            AnswerTable("uses", "Who uses which topic", USES, uses, top=15),
            AnswerTable("clients", "Clients", CLIENTS, [_client_row(*item) for item in found], top=10),
            AnswerTable("settings", "How they write and read", SETTINGS, settings, top=10),
        ]

    def notes(self) -> list[str]:
        found = []
        if self._beyond:
            found.append(f"{self._beyond:,} calls of clients beyond the first {MAX_CLIENTS:,} are not told")
        uses = (use for client in self._clients.values() for use in client.uses)
        if any(does == "consumes" and len(topic) == 36 and topic.count("-") == 4 for does, topic in uses):
            found.append("topics shown as uuids are named nowhere in the input")
        return found

    def _use_rows(self, key: tuple[str | None, str | None], client: Client) -> Iterable[Row]:
        for (does, topic), use in sorted(client.uses.items()):
            if self._topic in (None, topic):
                yield {
                    **vars(use), **_who(key), "does": does, "topic": topic, "partitions": len(use.partitions),
                    "groups": sorted(client.seen["group_id"]) if does == "consumes" else None,
                }  # fmt: skip


def _does(row: Row) -> str:
    replica = row["api_key"] == FETCH and REPLICA.match(row["client_id"] or "")
    return "replicates" if replica else DOES[row["api_key"]]


def _who(key: tuple[str | None, str | None]) -> Row:
    return {"client": key[1], "address": key[0]}


def _client_row(key: tuple[str | None, str | None], client: Client) -> Row:
    topics = defaultdict(list)
    for does, topic in sorted(client.uses):
        topics[does].append(topic)
    return {
        **vars(client), **_who(key), "software": client.words(*SOFTWARE), "user": client.words("user"),
        "produces": topics["produces"], "consumes": topics["consumes"] + topics["replicates"],
        "groups": sorted(client.seen["group_id"]), "brokers": sorted(map(str, client.seen["broker_ip"])),
        "ports": sorted(map(str, client.seen["broker_port"])), "connections": len(client.seen["connection"]),
        "security": client.words("security"),
    }  # fmt: skip


def _settings_row(key: tuple[str | None, str | None], client: Client) -> Row:
    writes = [use for (does, _), use in client.uses.items() if does == "produces"]
    parts = sum(use.parts for use in writes)
    return {
        **_who(key), "acks": [ACKS.get(acks, str(acks)) for acks in sorted(client.seen["acks"])],
        "codecs": sorted({codec for use in writes for codec in use.codecs}),
        "batch_bytes": round(sum(use.record_bytes for use in writes) / parts) if parts else None,
        "producer": _producer(client, bool(writes)), "isolation": sorted(client.isolation),
        "rack": client.words("rack"), "software": client.words(*SOFTWARE),
    }  # fmt: skip


def _producer(client: Client, writes: bool) -> str | None:
    """Whether it writes transactions, idempotently, or plainly; None where the capture doesn't show it."""
    if client.seen["transactional_id"]:
        return "transactional"
    if INIT_PRODUCER_ID in client.seen["api_key"]:
        return "idempotent"
    return "plain" if writes and client.seen["acks"] - {-1} else None


CLIENT = AnswerField("client", "text", "client", "as it calls itself: its client id")
ADDRESS = AnswerField("address", "text", "address", "its IP address")
FIRST = AnswerField("first_time", "time", "first", "packet time of the first", 6)
LAST = AnswerField("last_time", "time", "last", "packet time of the last", 7)
USES = (
    CLIENT,
    ADDRESS,
    AnswerField("does", "text", "does", "produces, consumes or replicates"),
    AnswerField("topic", "text", "topic", "name of the topic, its uuid where nothing names it"),
    AnswerField("groups", "list", "group", "groups the client is a member of", 2),
    AnswerField("partitions", "count", "partitions", "partitions of the topic in its requests", 5),
    AnswerField("records", "count", "records", "records sent or received, by their batch headers", 3),
    AnswerField("record_bytes", "bytes", "data", "record data as sent, compressed", 1),
    FIRST,
    LAST,
)
CLIENTS = (
    CLIENT,
    ADDRESS,
    AnswerField("software", "text", "software", "client library and version, as it says (KIP-511)", 3),
    AnswerField("user", "text", "user", "SASL user, where the mechanism shows it", 2),
    AnswerField("produces", "list", "produces to", "topics it writes", 8),
    AnswerField("consumes", "list", "consumes", "topics it reads", 8),
    AnswerField("groups", "list", "group", "groups it is a member of", 8),
    AnswerField("brokers", "list", "brokers", "addresses of the brokers it talks to", 9),
    AnswerField("ports", "list", "ports", "their ports", 12),
    AnswerField("connections", "count", "conns", "TCP connections", 7),
    AnswerField("calls", "count", "calls", "requests", 4),
    AnswerField("errors", "count", "errors", "calls with a non-zero error code", 1),
    AnswerField("sent_bytes", "bytes", "sent", "bytes of its requests", 5),
    AnswerField("received_bytes", "bytes", "received", "bytes of the responses", 5),
    AnswerField("first_time", "time", "first", "packet time of its first call", 6),
    AnswerField("last_time", "time", "last", "packet time of its last call", 10),
    AnswerField("security", "text", "security", "plaintext or tls", 11),
)
SETTINGS = (
    CLIENT,
    ADDRESS,
    AnswerField("acks", "list", "acks", "acknowledgements its producers wait for"),
    AnswerField("codecs", "list", "codecs", "compression of what it produces"),
    AnswerField("batch_bytes", "bytes", "batch", "mean size of what it sends to a partition at a time"),
    AnswerField(
        "producer", "text", "producer", "plain, idempotent or transactional; empty where nothing shows it"
    ),
    AnswerField("isolation", "list", "isolation", "of its fetches; only with --full", 1),
    AnswerField("rack", "text", "rack", "its rack, as it says in Fetch", 2),
    AnswerField("software", "text", "software", "client library and version", 3),
)
