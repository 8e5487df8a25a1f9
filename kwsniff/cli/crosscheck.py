"""The job of `kwsniff crosscheck`: our view of a capture beside that of Wireshark's own dissector,
message by message.

Theory of operation. Our events come first and say on which ports brokers listen; tshark then reads the same
file through pyshark with those ports decoded as Kafka. A message is found again by direction, the packet
that completes it, and its correlation id. Of messages that both saw, API, version, error codes and topics are
compared. tshark itself says where it is out of its depth: a version it does not support, a body whose end
it missed. There its word counts for nothing, and the difference is no finding. Nor is it one where tshark
takes a response for that to an older request of the same correlation id, which had its response before.
"""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kwsniff.capture.error import CaptureError
from kwsniff.capture.place import Unread
from kwsniff.capture.source import resolve
from kwsniff.cli import problem
from kwsniff.cli.problem import CommandError, said
from kwsniff.cli.request import Request
from kwsniff.config import Config
from kwsniff.output.text import printable
from kwsniff.run.offline import events
from kwsniff.spec.load import catalog

Place = tuple[str, int, int]
"""Direction, packet, correlation id."""


class Answered(NamedTuple):
    """A request and its response, by packet."""

    api_key: int
    version: int
    request: int
    response: int


class SeenMessage(NamedTuple):
    """One message as one of the two saw it."""

    api_key: int | None
    version: int | None
    error: int | None
    """First error code that is not 0, 0 if all are; None for requests and where the body was not read."""
    topics: frozenset[str] | None
    """None where the body was not read, or names no topics."""
    doubt: str
    """Why its reader may not be trusted with the body; empty if it may."""
    answered: tuple[Answered, ...] = ()
    """Of ours: older requests of the connection with this correlation id that had their response."""


@dataclass(frozen=True)
class Difference:
    """Messages that the two saw differently."""

    packet: int
    what: str
    right: str
    """kwsniff, or `unknown`: then it is a finding."""


@dataclass
class Agreement:
    """Of one API and version."""

    both: int = 0
    agreed: int = 0
    only_us: int = 0
    only_tshark: int = 0


@dataclass
class Comparison:
    """What a comparison found."""

    tallies: dict[tuple[int, int], Agreement] = field(default_factory=lambda: defaultdict(Agreement))
    differences: list[Difference] = field(default_factory=list)

    @property
    def findings(self) -> list[Difference]:
        """Differences in which kwsniff may be wrong."""
        return [each for each in self.differences if each.right == "unknown"]


def check(request: Request) -> int:
    """Print the comparison of each file; 1 if there are findings, else 0.

    Raises:
        CommandError: a tool is missing, or an input cannot be read.
    """
    found = False
    unread: list[Unread] = []
    try:
        files = resolve(request.paths, unread)
        for each in unread:
            said(f"{each}; it is passed over")
        for file in files:
            if file.size is None:
                raise CommandError(f"{file.path}: crosscheck reads the file twice, a pipe cannot be")
            result = crosscheck(file.path, request.config)
            for line in lines(file.path, result):
                print(printable(line))
            found = found or bool(result.findings)
    except CaptureError as error:
        raise CommandError(str(error)) from None
    if unread and not found:
        return problem.DAMAGED
    return problem.FINDINGS if found else problem.DONE


def crosscheck(path: str, config: Config) -> Comparison:
    """Compare the two views of one capture file.

    Raises:
        CommandError: tshark or pyshark is not installed.
        CaptureError: the file cannot be read.
    """
    if shutil.which("tshark") is None:
        raise CommandError("tshark is not installed; on Debian or Ubuntu: apt install tshark")
    try:
        import pyshark
    except ImportError:
        raise CommandError("pyshark is not installed: pip install 'kwsniff[crosscheck]'") from None
    mine, ports = _our_view(path, config)
    theirs = _their_view(pyshark, path, ports | set(config.ports), config.keylog)
    return _compared(mine, theirs)


def _our_view(path: str, config: Config) -> tuple[dict[Place, list[SeenMessage]], set[int]]:
    found: dict[Place, list[SeenMessage]] = defaultdict(list)
    ports: set[int] = set()
    answered: dict[tuple[str, int], list[Answered]] = defaultdict(list)
    for batch in events([path], config):
        for row in batch.to_pylist():
            if row["event"] != "call":
                continue
            same = answered[row["connection"], row["correlation_id"]]
            ports.add(row["broker_port"])
            doubt = row["status"] if row["status"] in ("undecoded", "truncated") else ""
            topics = frozenset(name for name in row["topics"] or () if name)
            for direction in ("request", "response"):
                packet = row[f"{direction}_packet"]
                if packet is not None:
                    error = row["error_code"] if direction == "response" else None
                    said = SeenMessage(row["api_key"], row["api_version"], error, topics, doubt, tuple(same))
                    found[direction, packet, row["correlation_id"]].append(said)
            if row["request_packet"] is not None and row["response_packet"] is not None:
                same.append(
                    Answered(
                        row["api_key"], row["api_version"], row["request_packet"], row["response_packet"]
                    )
                )
    return found, ports


def _their_view(
    pyshark: Any, path: str, ports: set[int], keylog: str | None
) -> dict[Place, list[SeenMessage]]:
    found: dict[Place, list[SeenMessage]] = defaultdict(list)
    # A loop of its own: pyshark takes the thread's, which asyncio.run leaves closed.
    loop = asyncio.new_event_loop()
    capture = pyshark.FileCapture(
        path, display_filter="kafka", keep_packets=False, eventloop=loop,
        decode_as={f"tcp.port=={port}": "kafka" for port in sorted(ports)},
        override_prefs={} if keylog is None else {"tls.keylog_file": keylog},
    )  # fmt: skip
    try:
        for packet in capture:
            for layer in packet.get_multiple_layers("kafka"):
                _take_layer(found, int(packet.number), layer)
    finally:
        capture.close()
        loop.close()
    return found


def _take_layer(found: dict[Place, list[SeenMessage]], packet: int, layer: Any) -> None:
    correlation = _values(layer, "correlation_id")
    if not correlation:
        return
    asked = bool(_values(layer, "request_key"))
    prefix = "request" if asked else "response"
    key, version = _values(layer, f"{prefix}_key"), _values(layer, f"{prefix}_version")
    errors = [int(code) for code in _values(layer, "error")]
    doubt = ""
    if _values(layer, "unsupported_api_version"):
        doubt = "tshark does not know this version"
    elif _values(layer, "pdu_length_mismatch"):
        doubt = "tshark missed the end of the message"
    said = SeenMessage(
        int(key[0], 0) if key else None,
        int(version[0], 0) if version else None,
        next((code for code in errors if code), 0 if errors else None),
        frozenset(name for name in _values(layer, "topic_name") if name != "[ Null ]"),
        doubt,
    )
    found[prefix, packet, int(correlation[0])].append(said)


def _values(layer: Any, name: str) -> list[str]:
    container = layer.get_field(name)
    return [] if container is None else [str(each.show) for each in container.all_fields]


def _compared(mine: dict[Place, list[SeenMessage]], theirs: dict[Place, list[SeenMessage]]) -> Comparison:
    result = Comparison()
    for place in sorted(mine.keys() | theirs.keys(), key=lambda place: (place[1], place)):
        ours, others = mine.get(place, []), theirs.get(place, [])
        for us, them in zip(ours, others, strict=False):
            _pair(result, place, us, them)
        for us in ours[len(others) :]:
            _tally(result, us).only_us += 1
        for them in others[len(ours) :]:
            _tally(result, them).only_tshark += 1
            known = them.api_key is not None
            what = f"{_title(them)} {place[0]} #{place[2]}: seen by tshark only"
            result.differences.append(Difference(place[1], what, "unknown" if known else "kwsniff"))
    return result


def _pair(result: Comparison, place: Place, us: SeenMessage, them: SeenMessage) -> None:
    tally = _tally(result, us)
    tally.both += 1
    facts = list(_differing(place[0], us, them))
    if not facts:
        tally.agreed += 1
        return
    right = "unknown"
    why = ""
    if them.doubt and all(name in ("error", "topics") for name, _ in facts):
        right, why = "kwsniff", f" ({them.doubt})"
    elif place[0] == "response" and (older := _mistaken_for(us, them)) is not None:
        right = "kwsniff"
        why = f" (tshark took the request of packet {older.request}, which packet {older.response} answered)"
    told = "; ".join(text for _, text in facts)
    what = f"{_title(us)} {place[0]} #{place[2]}: {told}{why}"
    result.differences.append(Difference(place[1], what, right))


def _mistaken_for(us: SeenMessage, them: SeenMessage) -> Answered | None:
    """The request that tshark paired a response with, if that had its response already. Old clients and the
    controller of 0.8 use a correlation id more than once."""
    if (us.api_key, us.version) == (them.api_key, them.version):
        return None
    said = (them.api_key, them.version)
    return next((each for each in reversed(us.answered) if (each.api_key, each.version) == said), None)


def _differing(direction: str, us: SeenMessage, them: SeenMessage) -> Iterator[tuple[str, str]]:
    for name in ("api_key", "version"):
        ours, others = getattr(us, name), getattr(them, name)
        if others is not None and ours != others:
            yield name, f"{name} {ours}, tshark {others}"
    if direction == "response" and them.error is not None and us.error != them.error:
        yield "error", f"error {us.error}, tshark {them.error}"
    if them.topics and us.topics is not None and not them.topics <= us.topics:
        alone = sorted(them.topics - us.topics)
        yield "topics", f"topics {sorted(us.topics)}, tshark also {alone}"


def _tally(result: Comparison, message: SeenMessage) -> Agreement:
    key = -1 if message.api_key is None else message.api_key
    return result.tallies[key, -1 if message.version is None else message.version]


def _title(message: SeenMessage) -> str:
    api = catalog().apis.get(-1 if message.api_key is None else message.api_key)
    name = api.name if api else "unknown API"
    return name if message.version is None else f"{name} {message.version}"


def lines(path: str, result: Comparison, most: int = 50) -> Iterator[str]:
    """The comparison as text: a line per API and version, then the differences."""
    yield f"{path}: messages by API and version"
    yield f"{'API':28} {'both':>7} {'agreed':>7} {'kwsniff only':>13} {'tshark only':>12}"
    for (key, version), tally in sorted(result.tallies.items()):
        name = _title(SeenMessage(key, version if version >= 0 else None, None, None, ""))
        yield f"{name:28} {tally.both:7} {tally.agreed:7} {tally.only_us:13} {tally.only_tshark:12}"
    groups = Counter(each.right for each in result.differences)
    for right in ("unknown", "kwsniff"):
        chosen = [each for each in result.differences if each.right == right]
        if not chosen:
            continue
        yield ""
        verdict = "kwsniff is right" if right == "kwsniff" else "findings: it is not known who is right"
        yield f"{groups[right]} differences, {verdict}"
        for each in chosen[:most]:
            yield f"  packet {each.packet}: {each.what}"
        if len(chosen) > most:
            yield f"  and {len(chosen) - most} more"
