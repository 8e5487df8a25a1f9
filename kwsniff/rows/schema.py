"""The one declaration of each column of EVENTS: name, type, unit, rows that have it, meaning, source.

The Arrow schemas in `kwsniff.rows.schema`, `kwsniff schema` and its page in the documentation are made from
it. To add a column, declare it here and fill it; until it is filled it is null.

Units: `µs` and `ms` are durations, `time` is packet time in UTC with microseconds, `bytes`, `packets` and
`records` are counts, `offset` is a position in a partition's log, `code` a number that the protocol gives a
meaning, `number` any other whole number; a column without a unit is text, a flag or a list.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import pyarrow as pa

from kwsniff.rows.events import ANOMALY, CALL, CONNECTION, EXCHANGE

TIMESTAMP = pa.timestamp("us", tz="UTC")
TEXT, FLAG = pa.string(), pa.bool_()
INT, LONG, DURATION = pa.int32(), pa.int64(), pa.float64()
TEXTS = pa.list_(TEXT)

ALL, CALL_AND_END = (CALL, EXCHANGE, ANOMALY, CONNECTION), (CALL, CONNECTION)
OF_EXCHANGES = frozenset(
    ("api_key", "api", "request_time", "request_end_time", "response_time", "response_end_time", "latency_us",
     "duration_us", "waited_us", "request_bytes", "response_bytes", "request_packet", "response_packet",
     "status", "in_flight", "rtt_us", "security")
)  # fmt: skip
"""Columns of calls that exchanges have as well."""

HEADER, PACKETS, TCP, FILE = "request header", "packet times", "TCP headers", "capture file"
TLS = "TLS handshake"
REQUEST, RESPONSE, BODIES = "request body", "response body", "request and response bodies"
SIZES = "length prefix"
DERIVED = "computed"
OF_REQUEST, OF_RESPONSE, REQUEST_FIRST, RESPONSE_FIRST = (
    "request", "response", "request first", "response first",
)  # fmt: skip
"""Whose value of a role a call takes: the request's, the response's, or the first that there is of both, for
which an empty text is none."""


class Column(NamedTuple):
    """One column of EVENTS, or one field of the structs in a list column."""

    name: str
    type: pa.DataType
    unit: str
    """See the module's text; empty where there is none."""
    kinds: tuple[str, ...]
    """Kinds of rows that have it: `call`, `exchange`, `anomaly`, `connection`. In the others it is null."""
    meaning: str
    source: str
    """What in the packets it is taken from."""
    role: str = ""
    """The role of dissectors (`kwsniff.spec.model.ROLES`) that fills it with nothing else being written: of a
    call one that a message has once, of a partition one that a partition has once."""
    whose: str = ""
    """Of a call with a role: OF_REQUEST, OF_RESPONSE, REQUEST_FIRST or RESPONSE_FIRST."""


def _call(
    name: str,
    kind: pa.DataType,
    unit: str,
    meaning: str,
    source: str,
    role: str = "",
    whose: str = "",
) -> Column:
    kinds = (CALL, EXCHANGE) if name in OF_EXCHANGES else (CALL,)
    return Column(name, kind, unit, kinds, meaning, source, role, whose)


def _anomaly(name: str, kind: pa.DataType, unit: str, meaning: str, source: str) -> Column:
    return Column(name, kind, unit, (ANOMALY,), meaning, source)


def _end(name: str, kind: pa.DataType, unit: str, meaning: str, source: str) -> Column:
    return Column(name, kind, unit, (CONNECTION,), meaning, source)


PARTITION_FIELDS = (
    _call("topic", TEXT, "", "topic name, null where the message names it by uuid", BODIES),
    _call("topic_id", TEXT, "", "topic uuid, hyphenated hexadecimal", BODIES),
    _call("partition", INT, "number", "partition index", BODIES),
    _call("error_code", INT, "code", "of this partition in the response", RESPONSE),
    _call("base_offset", LONG, "offset", "of the first record, or of the first batch", BODIES, "base_offset"),
    _call("records", LONG, "records", "by their batch headers; null where only the codec knows", BODIES),
    _call("bytes", LONG, "bytes", "of record data as sent, compressed", BODIES),
    _call("codec", TEXT, "", "none, gzip, snappy, lz4, zstd; several joined by +", BODIES),
    _call(
        "high_watermark", LONG, "offset",
        "first offset that not all replicas in sync have: what consumers may read ends before it", RESPONSE,
        "high_watermark",
    ),
    _call(
        "log_start_offset", LONG, "offset", "first offset that the log still holds", RESPONSE,
        "log_start_offset",
    ),
    _call(
        "last_stable_offset", LONG, "offset",
        "first offset of an open transaction: what readers of committed records may read ends before it",
        RESPONSE, "last_stable_offset",
    ),
    _call("fetch_offset", LONG, "offset", "first offset that the consumer asks for", REQUEST, "fetch_offset"),
    _call(
        "committed_offset", LONG, "offset", "committed by, or told to, a consumer group", BODIES,
        "committed_offset",
    ),
    _call(
        "leader_epoch", INT, "number", "of the partition's leader, as the message says", BODIES,
        "leader_epoch",
    ),
)  # fmt: skip

RESOURCE_FIELDS = (
    _call("type", TEXT, "", "topic, group, broker, user, acl, partition, ...", BODIES),
    _call("name", TEXT, "", "its name", BODIES),
    _call("error_code", INT, "code", "of this resource in the response", RESPONSE),
    _call("detail", TEXT, "", "what was asked of it, without secrets", REQUEST),
)


ASKED_FIELDS = (
    _call("topic", TEXT, "", "topic name, null where the request names it by uuid", REQUEST),
    _call("topic_id", TEXT, "", "topic uuid, hyphenated hexadecimal", REQUEST),
    _call("partition", INT, "number", "partition index", REQUEST),
    _call("fetch_offset", LONG, "offset", "asked for from here on; null: it leaves the session", REQUEST),
)

BROKER_FIELDS = (
    _call("node_id", INT, "number", "id of the broker", RESPONSE),
    _call("host", TEXT, "", "where clients reach it: name or address", RESPONSE),
    _call("port", INT, "number", "and port", RESPONSE),
)


def _struct(fields: Iterable[Column]) -> pa.DataType:
    return pa.struct([arrow_field(column) for column in fields])


def documented(name: str, kind: pa.DataType, doc: str) -> pa.Field:
    """A column that says what it holds."""
    return pa.field(name, kind, nullable=True, metadata={"doc": doc})


def arrow_field(column: Column) -> pa.Field:
    """The Arrow field of a column, with its meaning and unit in the metadata."""
    metadata = {"doc": column.meaning} | ({"unit": column.unit} if column.unit else {})
    return pa.field(column.name, column.type, nullable=True, metadata=metadata)


PARTITION = _struct(PARTITION_FIELDS)
RESOURCE = _struct(RESOURCE_FIELDS)
ASKED = _struct(ASKED_FIELDS)
BROKER = _struct(BROKER_FIELDS)

ITEMS = {
    "partitions": PARTITION_FIELDS,
    "resources": RESOURCE_FIELDS,
    "asked": ASKED_FIELDS,
    "advertised": BROKER_FIELDS,
}
"""The fields of what list columns hold."""

_ANY = (
    Column(
        "event", TEXT, "", ALL,
        "call, anomaly, connection or, of TLS without keys, exchange: an estimate of a call", DERIVED,
    ),
    Column(
        "time", TIMESTAMP, "time", ALL, "when a call's first byte, or what an anomaly is about, was seen",
        PACKETS,
    ),
    Column("capture", TEXT, "", ALL, "capture file in which the event was completed", FILE),
    Column("connection", TEXT, "", ALL, "stable id of the TCP connection, the same in every run", DERIVED),
    Column("client_ip", TEXT, "", ALL, "address of the end that sends requests", "IP"),
    Column("client_port", INT, "number", ALL, "its port", TCP),
    Column("broker_ip", TEXT, "", ALL, "address of the end that answers", "IP"),
    Column("broker_port", INT, "number", ALL, "its port", TCP),
)  # fmt: skip

_CALL_HEADER = (
    _call("api_key", INT, "code", "number of the API", HEADER),
    _call("api", TEXT, "", "name of the API", HEADER),
    _call("api_version", INT, "number", "version of the request, and so of the response", HEADER),
    _call("correlation_id", INT, "number", "what pairs request and response", HEADER),
    Column(
        "client_id",
        TEXT,
        "",
        CALL_AND_END,
        "as the client calls itself in the request header; of a connection: the latest",
        HEADER,
    ),
)

_CALL_TIMES = (
    _call("request_time", TIMESTAMP, "time", "packet time of the first byte of the request", PACKETS),
    _call("request_end_time", TIMESTAMP, "time", "packet time of its last byte", PACKETS),
    _call("response_time", TIMESTAMP, "time", "packet time of the first byte of the response", PACKETS),
    _call("response_end_time", TIMESTAMP, "time", "packet time of its last byte", PACKETS),
    _call("latency_us", DURATION, "µs", "response_time - request_end_time, exact to the nanosecond", PACKETS),
    _call("duration_us", DURATION, "µs", "response_end_time - request_time, as exact", PACKETS),
    _call(
        "request_transfer_us", DURATION, "µs",
        "part of duration_us: from the first to the last byte of the request",
        PACKETS,
    ),
    _call(
        "queued_us", DURATION, "µs",
        "part of duration_us: behind earlier requests of its connection; a broker handles one at a time",
        PACKETS,
    ),
    _call(
        "throttled_us", DURATION, "µs",
        "part of duration_us: the broker read nothing from the connection, as it had said (KIP-219)",
        "throttle_ms of the response before, packet times",
    ),
    _call(
        "waited_us", DURATION, "µs",
        "part of duration_us: waited on purpose, as Fetch does for data and JoinGroup for members",
        "packet times, what the request allows",
    ),
    _call(
        "broker_us", DURATION, "µs",
        "part of duration_us: what is left, the broker's own time; at most, where broker_least_us is less",
        PACKETS,
    ),
    _call(
        "broker_least_us", DURATION, "µs",
        "part of broker_us that was no waiting for certain: of Fetch what is beyond max_wait_ms, else all",
        "packet times, what the request allows",
    ),
    _call(
        "response_transfer_us", DURATION, "µs",
        "part of duration_us: from the first to the last byte of the response", PACKETS,
    ),
    Column(
        "rtt_us", DURATION, "µs", (*CALL_AND_END, EXCHANGE),
        "round trip between the capture point and the far end of the connection", "TCP handshake and ACKs",
    ),
    _call(
        "waited_open_us", DURATION, "µs",
        "of an unanswered call: from its last byte to the end of the connection or of the capture", PACKETS,
    ),
)  # fmt: skip

_CALL_FACTS = (
    _call("request_bytes", LONG, "bytes", "size of the request with its 4 length bytes", SIZES),
    _call("response_bytes", LONG, "bytes", "size of the response with its 4 length bytes", SIZES),
    _call("request_packet", LONG, "number", "packet that completed the request, from 1", FILE),
    _call("response_packet", LONG, "number", "packet that completed the response, from 1", FILE),
    _call("status", TEXT, "", "how the call went", DERIVED),
    _call("error_code", INT, "code", "first non-zero one of the response, 0 if all are zero", RESPONSE),
    _call("error", TEXT, "", "name of error_code, NONE for 0", RESPONSE),
    _call("error_count", INT, "number", "non-zero error codes in the response body", RESPONSE),
    _call(
        "throttle_ms", INT, "ms", "how long the broker says it throttles the client", RESPONSE,
        "throttle", OF_RESPONSE,
    ),
    _call("acks", INT, "number", "of Produce: 0, 1 or -1 (all)", REQUEST, "acks", OF_REQUEST),
    _call(
        "max_wait_ms", INT, "ms", "of Fetch: how long the broker may wait for data", REQUEST,
        "max_wait", OF_REQUEST,
    ),
    _call(
        "min_bytes", INT, "bytes", "of Fetch: how much data the broker waits for", REQUEST,
        "min_bytes", OF_REQUEST,
    ),
    _call("group_id", TEXT, "", "consumer, share or streams group", BODIES, "group", REQUEST_FIRST),
    _call("member_id", TEXT, "", "member of the group", BODIES, "member", REQUEST_FIRST),
    _call(
        "generation", INT, "number", "generation of the group, or the member's epoch (KIP-848)", BODIES,
        "generation", RESPONSE_FIRST,
    ),
    _call(
        "group_protocol", TEXT, "",
        "how the group shares partitions: the assignor of its members, or the protocol's type", BODIES,
        "group_protocol", RESPONSE_FIRST,
    ),
    _call(
        "reason", TEXT, "", "why a member joins or leaves, as it says (KIP-800)", REQUEST, "reason",
        OF_REQUEST,
    ),
    _call(
        "rack", TEXT, "", "of the client, as it names it in Fetch or a heartbeat", REQUEST, "rack",
        OF_REQUEST,
    ),
    _call("transactional_id", TEXT, "", "of the producer", REQUEST, "transactional_id", REQUEST_FIRST),
    _call("topics", TEXTS, "", "topic names, each once; null where only a uuid is given", BODIES),
    _call("topic_ids", TEXTS, "", "topic uuids, one for each of `topics`", BODIES),
    _call("partitions", pa.list_(PARTITION), "", "partitions of data calls", BODIES),
    _call("resources", pa.list_(RESOURCE), "", "what an administrative call is about", BODIES),
    _call(
        "session_id", INT, "number", "fetch session (KIP-227), 0 or null without one", BODIES, "session_id",
        RESPONSE_FIRST,
    ),
    _call(
        "session_epoch", INT, "number",
        "request within the session: 0 opens one, -1 has none; from 1 on only changes are named", REQUEST,
        "session_epoch", OF_REQUEST,
    ),
    _call(
        "asked", pa.list_(ASKED), "",
        "partitions that a Fetch names and its response doesn't: what changes in its session", REQUEST,
    ),
    _call(
        "advertised", pa.list_(BROKER), "",
        "brokers that the response names: the addresses that clients will connect to", RESPONSE,
    ),
    _call("record_count", LONG, "records", "sum of `records` of the partitions", BODIES),
    _call("record_bytes", LONG, "bytes", "sum of `bytes` of the partitions", BODIES),
    _call("in_flight", INT, "number", "requests of the connection unanswered when this was sent", DERIVED),
    _call("software_name", TEXT, "", "client library as named in ApiVersions (KIP-511)", REQUEST),
    _call("software_version", TEXT, "", "its version", REQUEST),
    _call("unanswered_because", TEXT, "", "why no response was captured", DERIVED),
    Column("closed_by", TEXT, "", CALL_AND_END, "who ended the connection, and with which flag", TCP),
)  # fmt: skip

_ANOMALY = (
    _anomaly("code", TEXT, "", "what is not as it should be", DERIVED),
    _anomaly("detail", TEXT, "", "the same in words, with figures", DERIVED),
    _anomaly("packet", LONG, "number", "packet it was noticed in", FILE),
)

_CONNECTION = (
    _end("first_time", TIMESTAMP, "time", "time of its first packet", PACKETS),
    _end("last_time", TIMESTAMP, "time", "time of its last packet", PACKETS),
    _end("client_packets", LONG, "packets", "packets from the client", TCP),
    _end("broker_packets", LONG, "packets", "packets from the broker", TCP),
    _end("client_bytes", LONG, "bytes", "payload from the client, retransmissions too", TCP),
    _end("broker_bytes", LONG, "bytes", "payload from the broker, retransmissions too", TCP),
    _end(
        "client_retransmissions", LONG, "packets",
        "packets from the client with payload that was captured before, without keep-alives and copies", TCP,
    ),
    _end("broker_retransmissions", LONG, "packets", "the same from the broker", TCP),
    _end(
        "client_zero_windows", LONG, "number",
        "how often the client closed its receive window: it does not read its responses", TCP,
    ),
    _end(
        "broker_zero_windows", LONG, "number",
        "how often the broker did: it does not read requests, as when it mutes a channel", TCP,
    ),
    _end("duplicates", LONG, "packets", "packets that the capture holds twice", "IP and TCP headers"),
    _end("first_packet", LONG, "number", "its first packet, from 1", FILE),
    _end("last_packet", LONG, "number", "its last packet", FILE),
    _end("client_missing_bytes", LONG, "bytes", "client bytes the capture lacks", TCP),
    _end("broker_missing_bytes", LONG, "bytes", "broker bytes the capture lacks", TCP),
    _end("syn", FLAG, "", "a SYN was seen", TCP),
    _end("fin", FLAG, "", "a FIN was seen", TCP),
    _end("rst", FLAG, "", "an RST was seen", TCP),
    _end("handshake_us", DURATION, "µs", "from SYN to the ACK that ends the handshake", TCP),
    Column(
        "security", TEXT, "", (*CALL_AND_END, EXCHANGE),
        "plaintext, tls, unknown or, if it was decrypted, the version of TLS", DERIVED,
    ),
    _end("decrypted", FLAG, "", "TLS records of it were opened with keys", "TLS records"),
    _end("tls_version", TEXT, "", "version that was agreed on", TLS),
    _end("tls_cipher", TEXT, "", "cipher suite by its IANA name", TLS),
    _end("tls_group", TEXT, "", "group of the key exchange", TLS),
    _end("tls_sni", TEXT, "", "server name that the client asked for", TLS),
    _end(
        "tls_sni_matches", FLAG, "", "the broker's certificate is for that name; up to TLS 1.2, or decrypted",
        TLS,
    ),
    _end("tls_alpn", TEXT, "", "application protocol that the broker chose", TLS),
    _end("tls_resumed", FLAG, "", "an earlier session was gone on with, by its id, a ticket or a PSK", TLS),
    _end(
        "tls_subject", TEXT, "",
        "subject of the broker's certificate (RFC 4514); certificates are seen up to TLS 1.2, or decrypted",
        TLS,
    ),
    _end("tls_valid_from", TIMESTAMP, "time", "since when that certificate is valid", TLS),
    _end("tls_expires", TIMESTAMP, "time", "until when it is valid", TLS),
    _end("tls_client_certificate", FLAG, "", "the client sent a certificate", TLS),
    _end("tls_client_subject", TEXT, "", "subject of that", TLS),
    _end(
        "tls_history", TEXT, "",
        "messages of the handshake, a letter each as in Zeek's ssl.log, those of the client as capitals", TLS,
    ),
    _end("tls_failed", TEXT, "", "how the handshake failed, in TLS 1.3 a guess: see docs/tls.md", TLS),
    _end("tls_ja4", TEXT, "", "JA4 fingerprint of the client's hello", TLS),
    _end("tls_software", TEXT, "", "language or library of TLS that says hello like that, a guess", TLS),
    _end("tls_client_hello_us", DURATION, "µs", "from the SYN to the client's hello", TLS),
    _end("tls_server_hello_us", DURATION, "µs", "from there to the broker's hello", TLS),
    _end("tls_first_request_us", DURATION, "µs", "from there to the first request", TLS),
    _end("tls_exchanges", LONG, "number", "its exchanges, of TLS without keys: an estimate", "TLS records"),
    _end("tls_doubtful", LONG, "number", "those that may be paired wrongly", "TLS records"),
    _end("tls_alert", TEXT, "", "first TLS alert in the clear: level, name and number", "TLS records"),
    _end("tls_alert_by", TEXT, "", "who sent it: client or broker", "TLS records"),
    _end("sasl_mechanism", TEXT, "", "as asked for in SaslHandshake", REQUEST),
    Column("user", TEXT, "", CALL_AND_END, "SASL user name where the mechanism shows it", "SASL tokens"),
    _end("resynchronisations", LONG, "number", "how often framing was lost and found", DERIVED),
    _end("skipped_bytes", LONG, "bytes", "captured bytes that belong to no frame", DERIVED),
    _end("frames", LONG, "number", "frames cut, both ways", SIZES),
    _end("undecoded_frames", LONG, "number", "frames whose body could not be decoded", DERIVED),
)  # fmt: skip

_FULL = (
    _call("request", TEXT, "", "with --full: the decoded request body as JSON", REQUEST),
    _call("response", TEXT, "", "with --full: the decoded response body as JSON", RESPONSE),
)

COLUMNS = (*_ANY, *_CALL_HEADER, *_CALL_TIMES, *_CALL_FACTS, *_ANOMALY, *_CONNECTION, *_FULL)
"""All columns of EVENTS in their order."""

EVENTS = pa.schema([arrow_field(column) for column in COLUMNS])
"""What `analyze` yields."""
