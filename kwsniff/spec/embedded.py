"""Messages inside bytes: control records, records of internal topics, and what group members tell each other.

Brokers write their own state as records whose key and value are messages of the same notation as requests
(`dissectors/*_coordinator.kdef`, `metadata_records.kdef`, `control_records.kdef`). Here is only how to find
out which message it is; the decoding is that of `kwsniff.spec`.

Every function returns None where the bytes are not what they would have to be: they are then shown as bytes.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from kwsniff.spec import parse
from kwsniff.spec.binary import DecodeError, uvarint
from kwsniff.spec.compile import data_decoder, decode_body, decode_data
from kwsniff.spec.interpret import BodyReader
from kwsniff.spec.load import catalog
from kwsniff.spec.model import Item

# The group protocol of Kafka Connect workers, which no published message definition describes.
#
# Workers put it into the `bytes` fields of JoinGroup and SyncGroup under protocol type `connect`. Layouts
# after KIP-415 and KIP-507: version 0 is the eager one, version 1 adds the current allocation, revoked tasks
# and a delay, version 2 is as version 1 but for signed requests among workers. In version 1 and above a
# worker may leave out what follows the offset. Task -1 stands for the connector itself.

_CONNECT = """
data ConnectWorkerState versions 0-2
  version int16
  url string?
  config_offset int64
  allocation bytes? 1+

data ConnectAssignment versions 0-2
  version int16
  error_code int16
  leader string?
  leader_url string?
  config_offset int64
  assignment []?
    connector string?
    tasks []int32
  revoked []? 1+
    connector string?
    tasks []int32
  delay_ms int32 1+
"""


@cache
def _connect_items(name: str, version: int) -> tuple[Item, ...]:
    message = parse.data(_CONNECT, "connect")[name]
    if version not in message.versions:
        raise DecodeError("value_invalid", "version", 0)
    return message.at(version).items


def decode_connect(name: str, data: bytes) -> dict[str, Any]:
    """What a worker says when it joins (`ConnectWorkerState`: its address, the config offset it has read,
    what it runs now), or what the leader gives it to run and takes away (`ConnectAssignment`).

    Raises:
        DecodeError: `data` is no such message.
    """
    reader, end = BodyReader(data, 0, len(data), facts=False), len(data)
    version = _int16(data, 0) or 0
    body: dict[str, Any] = {}
    for item in _connect_items(name, version):
        if version and "config_offset" in body and reader.pos == end:
            return body
        body[item.name] = reader.field(item, item.name, end)
    if reader.pos < end:
        raise DecodeError("trailing_bytes", offset=reader.pos)
    if body.get("allocation") is not None:
        body["allocation"] = decode_connect("ConnectAssignment", body["allocation"])
    return body


KEYED_TOPICS = {
    "__consumer_offsets": "group-coordinator",
    "__transaction_state": "transaction-coordinator",
    "__share_group_state": "share-coordinator",
}
"""Topics whose keys start with a record type, with the origin of their messages in the dissectors."""

METADATA_TOPICS = ("__cluster_metadata", "00000000-0000-0000-0000-000000000001")
"""The metadata log by name and by the uuid reserved for it (KIP-516, KIP-595)."""

CONTROL_TYPES = {
    0: ("abort", "EndTxnMarker"),
    1: ("commit", "EndTxnMarker"),
    2: ("leader_change", "LeaderChangeMessage"),
    3: ("snapshot_header", "SnapshotHeaderRecord"),
    4: ("snapshot_footer", "SnapshotFooterRecord"),
    5: ("kraft_version", "KRaftVersionRecord"),
    6: ("kraft_voters", "VotersRecord"),
}
"""Record type in the key of a control record (KIP-98, KIP-595, KIP-630, KIP-853)."""


class Embedded(NamedTuple):
    """A message found inside bytes."""

    message: str
    """Name of the data message, as in the dissectors."""
    version: int
    data: dict[str, Any]


def _decode(name: str, version: int, body: bytes) -> Embedded | None:
    try:
        return Embedded(name, version, decode_data(name, version, body))
    except (DecodeError, KeyError, ValueError):
        return None


def _prefixed(name: str, data: bytes, newest: int | None = None) -> Embedded | None:
    """A message after its version, int16. Newer versions than `newest` are read as that one."""
    version = _int16(data, 0)
    if version is None:
        return None
    return _decode(name, version if newest is None else min(version, newest), data[2:])


def _int16(data: bytes, pos: int) -> int | None:
    return int.from_bytes(data[pos : pos + 2], "big", signed=True) if len(data) >= pos + 2 else None


class Forwarded(NamedTuple):
    """A request inside an Envelope, with what its header says (KIP-590)."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body: dict[str, Any]


def forwarded(data: bytes) -> Forwarded | None:
    """The request that a broker sends on to the controller."""
    key, version = _int16(data, 0) or 0, _int16(data, 2) or 0
    try:
        header = 2 if key is not None and version in catalog().api(key).message("request").flexible else 1
        fields, pos = data_decoder("RequestHeader", header)(data, 0, len(data))
        body = decode_body(fields["request_api_key"], fields["request_api_version"], "request", data[pos:])
    except (DecodeError, KeyError):
        return None
    return Forwarded(key, version, fields["correlation_id"], fields["client_id"], body)


# Control records


def control_record(key: bytes | None, value: bytes | None) -> tuple[str, Embedded | None] | None:
    """Type of a control record and the message in its value. The key is version and type, int16 each.

    Transaction markers state their version before the message, the metadata log's own as its first field.
    """
    kind = _int16(key or b"", 2)
    if kind is None:
        return None
    if kind not in CONTROL_TYPES:
        return f"unknown_{kind}", None
    word, name = CONTROL_TYPES[kind]
    if value is None:
        return word, None
    if kind < 2:
        return word, _prefixed(name, value)
    return word, _decode(name, _int16(value, 0) or 0, value)


# Internal topics


def topic_record(
    topic: str | None, key: bytes | None, value: bytes | None
) -> tuple[Embedded | None, Embedded | None]:
    """The messages in key and value of a record of an internal topic, None for those it has not."""
    if topic in METADATA_TOPICS:
        return None, None if value is None else _metadata_record(value)
    origin = KEYED_TOPICS.get(topic or "")
    kind = _int16(key or b"", 0)
    if origin is None or kind is None:
        return None, None
    name = _keyed(origin).get(kind)
    if name is None:
        return None, None
    return _prefixed(f"{name}Key", key or b""), None if value is None else _prefixed(f"{name}Value", value)


@cache
def _keyed(origin: str) -> dict[int, str]:
    """Record type to name without `Key`: the versions of key messages are the record types they stand for."""
    messages = (m for m in catalog().data_messages() if m.used == origin and m.name.endswith("Key"))
    return {version: m.name.removesuffix("Key") for m in messages for version in m.versions}


@cache
def _metadata_names() -> dict[int, str]:
    return {m.record: m.name for m in catalog().data_messages() if m.record is not None}


def _metadata_record(value: bytes) -> Embedded | None:
    """Frame version, record type and version as unsigned varints, then the message (KIP-631)."""
    try:
        _, pos = uvarint(value, 0, len(value))
        kind, pos = uvarint(value, pos, len(value))
        version, pos = uvarint(value, pos, len(value))
    except DecodeError:
        return None
    name = _metadata_names().get(kind)
    return None if name is None else _decode(name, version, value[pos:])


# Group members

NEWEST_CONSUMER_PROTOCOL = 3
"""Members read newer versions as the newest they know: fields are only ever added at the end (KIP-429)."""


def member_metadata(protocol_type: str | None, data: bytes) -> Embedded | None:
    """What a member says when it joins: its subscription, or a Connect worker's state.

    `protocol_type` is that of the group, None where the message does not tell: then what fits is taken.
    """
    return _member("ConsumerProtocolSubscription", "ConnectWorkerState", protocol_type, data)


def member_assignment(protocol_type: str | None, data: bytes) -> Embedded | None:
    """What the leader assigns to a member; `protocol_type` as in `member_metadata`."""
    return _member("ConsumerProtocolAssignment", "ConnectAssignment", protocol_type, data)


def _member(consumer: str, worker: str, protocol_type: str | None, data: bytes) -> Embedded | None:
    found = None
    if protocol_type in ("consumer", None, ""):
        found = _prefixed(consumer, data, NEWEST_CONSUMER_PROTOCOL)
    if found is None and protocol_type in ("connect", None, ""):
        found = _connect(worker, data)
    return found


def _connect(name: str, data: bytes) -> Embedded | None:
    try:
        body = decode_connect(name, data)
    except DecodeError:
        return None
    return Embedded(name, _int16(data, 0) or 0, body)


def streams_user_data(data: bytes) -> Embedded | None:
    """What Kafka Streams adds to its subscription (protocol `stream`); the version comes first, int32."""
    return _decode("SubscriptionInfoData", int.from_bytes(data[:4], "big", signed=True), data)


def principal(data: bytes) -> Embedded | None:
    """The principal in whose name a broker forwards a request (KIP-590)."""
    return _prefixed("DefaultPrincipalData", data)
