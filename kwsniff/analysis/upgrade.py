"""Whether a client would work with brokers of another release: one verdict, for whoever tells it.

A client breaks if it uses a version of an API that the release does not serve and will not choose another.
Whether it will can be told from what it was offered: a client that asks (ApiVersions) and uses the newest
version that this broker is known to serve may know newer ones, and chooses among what it is offered after
the upgrade; one whose broker served newer ones knows none of them, and one that never asks uses fixed
versions. Where it is not known what the broker serves, nothing is known. Nor is it of a client that takes the
newest but asks in a version of ApiVersions before 3, as clients from before 2019 do (Kafka 2.4, KIP-511): it
may know nothing newer.

What each release serves is in `dissectors/releases.kdef`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from kwsniff.analysis.rule import Context, Finding, Rule, command, evidence
from kwsniff.analysis.tabular import AnswerField, AnswerTable, Row, calls_of, columns, ends_of, grouped
from kwsniff.count.codes import Keys
from kwsniff.count.eventrows import EventBatch
from kwsniff.count.keyed import Key
from kwsniff.count.tally import Entry, Tally
from kwsniff.output.units import client, listed, many
from kwsniff.rows.columns import Ints
from kwsniff.spec.load import catalog
from kwsniff.spec.model import Versions
from kwsniff.spec.releases import releases

API_VERSIONS = 18
NAMES_ITSELF = 3
"""Version of ApiVersions in which clients name their software (KIP-511)."""
BETWEEN_BROKERS = frozenset(
    (4, 5, 6, 7, 27, 52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, 82, 83, 84, 85, 86, 87)
)
"""APIs that only brokers and controllers call. Who does is upgraded with them, and left out."""
REPLICAS = ("ReplicaFetcherThread-", "broker-")
"""How client ids of brokers begin."""
BY_PLUGIN = (71, 72)
"""Client telemetry is served where a plugin takes it, in no release by itself, and clients do without it."""
BREAKS, NEGOTIATES, UNKNOWN, WORKS = "breaks", "will negotiate", "unknown", "ok"


@dataclass(slots=True)
class Asking:
    """How a client asks what brokers offer."""

    asked: int = -1
    """Greatest version of ApiVersions it asked in; -1 if it never did."""
    whole: bool = False
    """A connection of it was seen from its beginning."""
    partly: bool = False
    """One was joined when it was open already."""
    named: bool = False
    """It named its software."""


def verdict(
    client: Asking, key: int, version: int, served: Versions, newest: int | None, offer: str = ""
) -> tuple[str, str]:
    """The verdict on one version of an API, and why. `served` are those of the release, `newest` is the
    greatest that the client's broker is known to serve now; `offer` what it offers, in words."""
    if version in served:
        return WORKS, ""
    what = f"{api_name(key)} v{version} ({f'serves {served}' if served else 'not served'})"
    if client.asked < 0:
        if client.whole and not client.partly:
            return BREAKS, f"{what}: never asks what is offered"
        return UNKNOWN, f"{what}: ApiVersions not captured"
    if newest is None:
        return UNKNOWN, f"{what}: ApiVersions not captured"
    if served and version > served.last:
        return NEGOTIATES, f"{what}: takes what is offered"
    if version < newest:
        return BREAKS, f"{what}: {offer or f'others use v{newest}'}, knows no newer"
    if not offer:  # others may have used less than is served
        return UNKNOWN, f"{what}: ApiVersions not captured"
    if client.asked < NAMES_ITSELF and not client.named:
        return UNKNOWN, f"{what}: newest on offer, may know no newer"
    return NEGOTIATES, f"{what}: newest on offer"


def api_name(key: int) -> str:
    """The name of an API."""
    api = catalog().apis.get(key)
    return api.name if api else f"API {key}"


# What `kwsniff upgrade-check` answers. What a broker offers stands in the bodies of its answers to
# ApiVersions; where those are not there, what it served to anybody is known.

ORDER = (BREAKS, UNKNOWN, NEGOTIATES, WORKS)
"""The worst first: what a client's APIs add up to."""
MAX_CLIENTS = 100_000
NEEDED = columns(
    """
    event time client_ip client_id broker_ip broker_port api_key api_version connection software_name
    software_version response syn latency_us status
    """
)

Who = tuple[str | None, str | None]
Broker = tuple[str | None, int | None]
Offer = dict[int, tuple[int, int]]
"""By API key: the least and greatest version that a broker offers."""


@dataclass(slots=True)
class JudgedClient(Asking):
    """What one client used, and how it asks."""

    used: Counter[tuple[Broker, int, int]] = field(default_factory=Counter)
    """Calls by broker, API key and version."""
    broker: bool = False
    """It is a broker or a controller itself."""
    software: set[str] = field(default_factory=set)


class UpgradeCheck:
    """Takes EVENTS and gives a verdict on each client. Raises ValueError for a release that is not known."""

    def __init__(self, target: str) -> None:
        self.needs = NEEDED
        self.target = releases().find(target)
        self._clients: dict[Who, JudgedClient] = {}
        self._offers: dict[Broker, Offer] = {}
        self._served: dict[tuple[Broker, int], int] = {}
        """The greatest version of each API that a broker answered."""
        self._owners: dict[str, JudgedClient] = {}
        self._ends: dict[str, bool] = {}
        self._bodies = False

    def take(self, batch: pa.RecordBatch) -> None:
        calls = calls_of(batch)
        # What nobody answered may be no request: bytes that looked like one after a gap.
        sure = pc.or_kleene(pc.is_valid(calls["latency_us"]), pc.equal(calls["status"], "no_reply_expected"))
        calls = calls.filter(pc.and_(pc.is_valid(calls["api_version"]), pc.fill_null(sure, False)))
        for row in grouped(calls, (*_CLIENT, *_USE), (("event", "count"),)):
            self._take_group(row)
        for row in grouped(calls, (*_CLIENT, *_CONNECTION)):
            self._take_connection(row)
        asked = calls.filter(pc.equal(calls["api_key"], API_VERSIONS))
        for row in asked.select(["broker_ip", "broker_port", "response"]).to_pylist():
            self._take_offer(row)
        for row in ends_of(batch).select(["connection", "syn"]).to_pylist():
            self._ends[row["connection"]] = bool(row["syn"])

    def _take_group(self, row: Row) -> None:
        client = self._client(row)
        if client is None:
            return
        key, version = row["api_key"], row["api_version"]
        place = (row["broker_ip"], row["broker_port"]), key
        self._served[place] = max(self._served.get(place, 0), version)
        if key == API_VERSIONS:
            client.asked = max(client.asked, version)
        else:
            client.broker |= key in BETWEEN_BROKERS or (row["client_id"] or "").startswith(REPLICAS)
            client.used[place[0], key, version] += row["event_count"]

    def _take_connection(self, row: Row) -> None:
        client = self._client(row)
        if client is None:
            return
        if len(self._owners) < 2 * MAX_CLIENTS:
            self._owners[row["connection"]] = client
        if row["software_name"]:
            client.named = True
            client.software.add(" ".join(filter(None, (row["software_name"], row["software_version"]))))

    def _take_offer(self, row: Row) -> None:
        if row["response"] is None:
            return
        self._bodies = True
        body = orjson.loads(row["response"])
        offer = {
            each["api_key"]: (each["min_version"], each["max_version"]) for each in body.get("api_keys") or ()
        }
        # An answer of UNSUPPORTED_VERSION names ApiVersions alone.
        if len(offer) > 1:
            self._offers[(row["broker_ip"], row["broker_port"])] = offer

    def _client(self, row: Row) -> JudgedClient | None:
        who = (row["client_ip"], row["client_id"])
        if who not in self._clients and len(self._clients) >= MAX_CLIENTS:
            return None
        return self._clients.setdefault(who, JudgedClient())

    def tables(self) -> list[AnswerTable]:
        """The verdict on each client, the worst first, and on each API it uses."""
        for connection, syn in self._ends.items():
            if connection in self._owners:
                self._owners[connection].whole |= syn
                self._owners[connection].partly |= not syn
        clients = {who: client for who, client in self._clients.items() if not client.broker}
        checked = {who: list(self._checked(client)) for who, client in clients.items()}
        rows = [self._client_row(who, self._clients[who], found) for who, found in checked.items() if found]
        rows.sort(key=lambda row: (ORDER.index(row["verdict"]), str(row["client"]), str(row["address"])))
        apis = [
            {"client": who[1], "address": who[0], **row}
            for who, found in checked.items()
            for row in found
            if row["verdict"] != WORKS
        ]
        apis.sort(
            key=lambda row: (ORDER.index(row["verdict"]), str(row["client"]), row["api"], row["version"])
        )
        return [
            AnswerTable("clients", f"Clients of brokers of Kafka {self.target}", CLIENTS, rows),
            AnswerTable("apis", "Versions it does not serve", APIS, apis),
        ]

    def breaks(self) -> bool:
        """Whether any client breaks."""
        return any(row["verdict"] == BREAKS for row in self.tables()[0].rows)

    def notes(self) -> list[str]:
        found = []
        if self._clients and not self._offers:
            found.append(
                "no broker's answer to ApiVersions is in the input, so what the brokers offer is not known"
                if self._bodies or any(client.asked < 0 for client in self._clients.values())
                else "the events hold no bodies, so what the brokers offer is not known: read the capture"
            )
        between = sum(sum(client.used.values()) for client in self._clients.values() if client.broker)
        if between:
            found.append(f"{between:,} calls of brokers among themselves are left out")
        return found

    def _checked(self, client: JudgedClient) -> Iterator[Row]:
        sums: dict[tuple[int, int], list[tuple[Broker, int]]] = {}
        for (broker, key, version), count in client.used.items():
            sums.setdefault((key, version), []).append((broker, count))
        for (key, version), found in sorted(sums.items()):
            if key not in BY_PLUGIN:
                verdicts = [self._verdict(client, broker, key, version) for broker, _ in found]
                verdict, why = min(verdicts, key=lambda each: ORDER.index(each[0]))
                yield {
                    "verdict": verdict, "api": api_name(key), "version": version, "why": why,
                    "served": str(releases().serves(self.target, key)), "calls": sum(n for _, n in found),
                    "offered": self._offered(found[0][0], key),
                }  # fmt: skip

    def _verdict(self, client: JudgedClient, broker: Broker, key: int, version: int) -> tuple[str, str]:
        known = (self._served.get((broker, key)), self._offers.get(broker, {}).get(key, (0, None))[1])
        newest = max((each for each in known if each is not None), default=None)
        offered = self._offered(broker, key)
        served = releases().serves(self.target, key)
        return verdict(client, key, version, served, newest, f"offered {offered}" if offered else "")

    def _offered(self, broker: Broker, key: int) -> str | None:
        found = self._offers.get(broker, {}).get(key)
        return None if found is None else f"{found[0]}-{found[1]}"

    def _client_row(self, who: Who, client: JudgedClient, found: list[Row]) -> Row:
        verdict = min((row["verdict"] for row in found), key=ORDER.index)
        why = [row["why"] for row in found if row["verdict"] == verdict and row["why"]]
        return {
            "verdict": verdict, "client": who[1], "address": who[0],
            "software": ", ".join(sorted(client.software)) or None, "why": why,
            "apis": len({row["api"] for row in found}),
        }  # fmt: skip


_CLIENT = ("client_ip", "client_id")
_CONNECTION = ("connection", "software_name", "software_version")
_USE = ("broker_ip", "broker_port", "api_key", "api_version")
CLIENT = AnswerField("client", "text", "client", "client id")
ADDRESS = AnswerField("address", "text", "address", "its address", 2)
VERDICT = AnswerField("verdict", "text", "verdict", "breaks, unknown, will negotiate or ok")
CLIENTS = (
    VERDICT,
    CLIENT,
    ADDRESS,
    AnswerField("software", "text", "software", "client library and version, as it says", 1),
    AnswerField("apis", "count", "APIs", "APIs it uses", 3),
    AnswerField("why", "list", "because", "the versions that decided it, and why"),
)
APIS = (
    VERDICT,
    CLIENT,
    ADDRESS,
    AnswerField("api", "text", "API", "name of the API"),
    AnswerField("version", "count", "version", "version it uses"),
    AnswerField("served", "text", "served", "versions the release serves"),
    AnswerField("offered", "text", "offered", "versions its broker offers now"),
    AnswerField("calls", "count", "calls", "calls in this version"),
    AnswerField("why", "text", "because", "why", 9),
)

# Clients that would stop working with brokers of Kafka 4.0, which dropped old versions of APIs (KIP-896).
# What a broker offers stands in bodies, which rules don't see; what it served to anybody is known.

TARGET = "4.0"
SERVED = releases()
RELEASE = SERVED.find(TARGET)
ANY = Versions(((0, 1 << 15),))
UNKNOWN_VERSION = 1 << 20


def _ends(served: Versions) -> tuple[int, int]:
    """The least and the greatest version; of none a range that holds nothing."""
    return (served.first, served.last) if served else (1 << 15, -1)


class OldClients(Rule):
    """A client uses versions of APIs that Kafka 4.0 no longer serves, and will not choose others: it never
    asks what the broker offers, or the broker offers newer versions (it served them to others) and the
    client took the old one. Upgrade it before the brokers. `upgrade-check` looks at every client and
    target."""

    code = "old_client"
    about = "old clients"
    several = "{clients:client} would not work with Kafka 4.0."
    needs = columns("api_version software_name software_version syn")
    missing = "no calls"

    old: Tally
    """Versions that 4.0 does not serve, by client id, address, broker, API's name and key."""
    asked: Tally
    """ApiVersions calls by client id and address: their greatest version, calls that name a software."""
    brokers: Tally
    """Clients that are brokers."""
    served: Tally
    """By broker and API's key: the greatest version answered."""
    begun: Tally
    """By client id and address: connections seen from their SYN, and others."""

    def take(self, batch: EventBatch) -> None:
        calls = batch.calls
        self.looked += len(calls)
        key, version = calls.coded("api_key"), calls.ints("api_version", UNKNOWN_VERSION)
        served = [SERVED.serves(RELEASE, each) if each is not None else ANY for each in key.values] or [ANY]
        first, last = (np.array(each)[key.codes] for each in zip(*map(_ends, served), strict=True))
        # What nobody answered may be no request: bytes that looked like one after a gap.
        sure = calls.known("latency_us") | calls.coded("status").equals("no_reply_expected")
        sure &= version != UNKNOWN_VERSION
        old = sure & ((version < first) | (version > last)) & ~calls.is_in("api_key", BY_PLUGIN)
        who: Keys = [calls.client]
        self.old.add(calls, old, [*who, calls.broker, calls.coded("api"), key], maxes=[version, -version])
        asks = calls.is_in("api_key", (API_VERSIONS,)) & sure
        self.asked.add(calls, asks, who, [calls.known("software_name")], [version])
        among = calls.coded("client_id").beginning(REPLICAS) | calls.is_in("api_key", tuple(BETWEEN_BROKERS))
        self.brokers.add(calls, among, who)
        self.served.add(calls, sure & (first > 0), [calls.broker, key], maxes=[version])
        rows = batch.connections
        syn: Ints = rows.ints("syn")
        self.begun.add(rows, rows.ints("frames") > 0, [rows.client], [syn, 1 - syn])

    def findings(self, context: Context) -> Iterable[Finding]:
        breaking: dict[bool, dict[Key, Entry]] = {}
        for key, entry in self.old.entries.items():
            if self._verdict(key, entry) == BREAKS:
                breaking.setdefault(key[:2] in self.asked.entries, {})[key] = entry
        return [self._finding(asks, entries, context) for asks, entries in breaking.items()]

    def unjudged(self) -> str:
        unsure = any(self._verdict(key, entry) == UNKNOWN for key, entry in self.old.entries.items())
        return "what brokers offer stands in bodies: kwsniff upgrade-check" if unsure else ""

    def _verdict(self, key: Key, entry: Entry) -> str:
        who = key[:2]
        if who in self.brokers.entries:
            return WORKS
        asked, begun = self.asked.entries.get(who), self.begun.entries.get(who)
        asking = Asking(
            asked=-1 if asked is None else int(asked.maxes[0]),
            whole=begun is not None and begun.sums[0] > 0,
            partly=begun is not None and begun.sums[1] > 0,
            named=asked is not None and asked.sums[0] > 0,
        )
        answered = self.served.entries.get((key[2], key[4]))
        newest = None if answered is None else int(answered.maxes[0])
        return verdict(asking, key[4], int(-entry.maxes[1]), SERVED.serves(RELEASE, key[4]), newest)[0]

    def _finding(self, asks: bool, entries: dict[Key, Entry], context: Context) -> Finding:
        clients = list(dict.fromkeys(client(key[0], key[1]) for key in entries))
        versions = sorted({f"{key[3]} v{int(-entry.maxes[1])}" for key, entry in entries.items()})
        why = "although the broker offers newer ones" if asks else "without asking what the broker offers"
        calls = sum(entry.count for entry in entries.values())
        some = clients[0] if len(clients) == 1 else many(len(clients), "client")
        named = "" if len(clients) == 1 else f" ({listed(clients)})"
        brief = f"{'uses' if len(clients) == 1 else 'use'} {listed(versions, 3)} {why}"
        it = "it" if len(clients) == 1 else "they"
        sentence = f"{some} would not work with Kafka 4.0{named}: {it} {brief}."
        return self.found(
            "notice", some, sentence, {"clients": len(clients), "calls": calls}, evidence(*entries.values()),
            command(f"upgrade-check --target {TARGET}"), weight=calls, share=context.of_calls(calls),
            brief=brief,
        )  # fmt: skip
