"""The two Arrow tables of the pipeline: SEGMENTS, what `analyze` takes, and EVENTS, what it yields.

Types are those that Spark, pandas and DuckDB all hold without a cast: signed integers, microsecond
timestamps in UTC. Each column says in its metadata what it holds.
"""

from __future__ import annotations

import pyarrow as pa

TIMESTAMP = pa.timestamp("us", tz="UTC")
TEXTS = pa.list_(pa.string())


def _column(name: str, kind: pa.DataType, doc: str) -> pa.Field:
    return pa.field(name, kind, nullable=True, metadata={"doc": doc})


SEGMENTS = pa.schema(
    [
        _column("capture", pa.string(), "capture file; the same in all rows of a batch"),
        _column("packet", pa.int64(), "number of the packet in its file, from 1"),
        _column("time", pa.int64(), "nanoseconds since 1970 UTC"),
        _column("src_hi", pa.int64(), "upper half of the source address as IPv6; IPv4 is ::ffff:a.b.c.d"),
        _column("src_lo", pa.int64(), "lower half"),
        _column("dst_hi", pa.int64(), "upper half of the destination address"),
        _column("dst_lo", pa.int64(), "lower half"),
        _column("src_port", pa.int32(), "TCP source port"),
        _column("dst_port", pa.int32(), "TCP destination port"),
        _column("seq", pa.int64(), "TCP sequence number of the first payload byte, or of the SYN (0 to 2³²-1)"),
        _column("ack", pa.int64(), "TCP acknowledgement number"),
        _column("flags", pa.int32(), "TCP flags: FIN 1, SYN 2, RST 4, PSH 8, ACK 16"),
        _column("length", pa.int64(), "payload bytes on the wire; more than `payload` holds if cut by snaplen"),
        _column("payload", pa.binary_view(), "payload bytes captured"),
        _column("anomaly", pa.string(), "set in a row that is no segment but reports on a packet"),
        _column("detail", pa.string(), "of the anomaly"),
    ]
)

PARTITION = pa.struct(
    [
        _column("topic", pa.string(), "topic name, null where the message names it by uuid"),
        _column("topic_id", pa.string(), "topic uuid, hyphenated hexadecimal"),
        _column("partition", pa.int32(), "partition index"),
        _column("error_code", pa.int32(), "of this partition in the response"),
        _column("base_offset", pa.int64(), "offset the broker gave the first record, or of the first batch"),
        _column("records", pa.int64(), "records by their batch headers; null where only the codec knows"),
        _column("bytes", pa.int64(), "of record data as sent, compressed"),
        _column("codec", pa.string(), "none, gzip, snappy, lz4, zstd; several joined by +"),
    ]
)

EVENTS = pa.schema(
    [
        _column("event", pa.string(), "call, anomaly or connection"),
        _column(
            "time", TIMESTAMP, "packet time: when a call's first byte, or what an anomaly is about, was seen"
        ),
        _column("capture", pa.string(), "capture file in which the event was completed"),
        _column("connection", pa.string(), "stable id of the TCP connection, the same in every run"),
        _column("client_ip", pa.string(), "address of the end that sends requests"),
        _column("client_port", pa.int32(), "its port"),
        _column("broker_ip", pa.string(), "address of the end that answers"),
        _column("broker_port", pa.int32(), "its port"),
        _column("api_key", pa.int32(), "number of the API"),
        _column("api", pa.string(), "name of the API"),
        _column("api_version", pa.int32(), "version of the request, and so of the response"),
        _column("correlation_id", pa.int32(), "what pairs request and response"),
        _column("client_id", pa.string(), "as the client calls itself in the request header"),
        _column("request_time", TIMESTAMP, "packet time of the first byte of the request"),
        _column("request_end_time", TIMESTAMP, "packet time of the last byte of the request"),
        _column("response_time", TIMESTAMP, "packet time of the first byte of the response"),
        _column("response_end_time", TIMESTAMP, "packet time of the last byte of the response"),
        _column("latency_us", pa.float64(), "response_time - request_end_time, exact to the nanosecond"),
        _column("duration_us", pa.float64(), "response_end_time - request_time, exact to the nanosecond"),
        _column("request_bytes", pa.int64(), "size of the request with its 4 length bytes"),
        _column("response_bytes", pa.int64(), "size of the response with its 4 length bytes"),
        _column("request_packet", pa.int64(), "number of the packet that completed the request, from 1"),
        _column("response_packet", pa.int64(), "number of the packet that completed the response, from 1"),
        _column("status", pa.string(), "see kwsniff.events.STATUSES"),
        _column("error_code", pa.int32(), "first non-zero error code of the response body, 0 if all are zero"),
        _column("error", pa.string(), "its name"),
        _column("error_count", pa.int32(), "non-zero error codes in the response body"),
        _column("throttle_ms", pa.int32(), "how long the broker says it throttles the client"),
        _column("acks", pa.int32(), "of Produce: 0, 1 or -1 (all)"),
        _column("max_wait_ms", pa.int32(), "of Fetch: how long the broker may wait for data"),
        _column("group_id", pa.string(), "consumer, share or streams group"),
        _column("member_id", pa.string(), "member of the group"),
        _column("transactional_id", pa.string(), "of the producer"),
        _column("topics", TEXTS, "topic names, each once; null where only a uuid is given"),
        _column("topic_ids", TEXTS, "topic uuids, one for each of `topics`"),
        _column("partitions", pa.list_(PARTITION), "partitions of data calls"),
        _column("record_count", pa.int64(), "sum of `records` of the partitions"),
        _column("record_bytes", pa.int64(), "sum of `bytes` of the partitions"),
        _column("in_flight", pa.int32(), "requests of the connection without response when this one was sent"),
        _column("software_name", pa.string(), "client library as named in ApiVersions (KIP-511)"),
        _column("software_version", pa.string(), "its version"),
        _column("unanswered_because", pa.string(), "see kwsniff.events.UNANSWERED_REASONS"),
        # anomalies
        _column("code", pa.string(), "of an anomaly, see kwsniff.events.ANOMALIES"),
        _column("detail", pa.string(), "of an anomaly, in words"),
        _column("packet", pa.int64(), "of an anomaly: packet it was noticed in"),
        # connections
        _column("first_time", TIMESTAMP, "of a connection: time of its first packet"),
        _column("last_time", TIMESTAMP, "of a connection: time of its last packet"),
        _column("client_packets", pa.int64(), "of a connection: packets from the client"),
        _column("broker_packets", pa.int64(), "of a connection: packets from the broker"),
        _column("client_bytes", pa.int64(), "of a connection: TCP payload from the client, retransmissions too"),
        _column("broker_bytes", pa.int64(), "of a connection: TCP payload from the broker, retransmissions too"),
        _column("client_missing_bytes", pa.int64(), "of a connection: client bytes the capture lacks"),
        _column("broker_missing_bytes", pa.int64(), "of a connection: broker bytes the capture lacks"),
        _column("syn", pa.bool_(), "of a connection: a SYN was seen"),
        _column("fin", pa.bool_(), "of a connection: a FIN was seen"),
        _column("rst", pa.bool_(), "of a connection: an RST was seen"),
        _column("handshake_us", pa.float64(), "of a connection: from SYN to the ACK that ends the handshake"),
        _column("security", pa.string(), "of a connection: see kwsniff.events.SECURITY"),
        _column("sasl_mechanism", pa.string(), "of a connection: as asked for in SaslHandshake"),
        _column("user", pa.string(), "of a connection: SASL user name where the mechanism shows it"),
        _column("resynchronisations", pa.int64(), "of a connection: how often framing was lost and found"),
        _column("skipped_bytes", pa.int64(), "of a connection: captured bytes that belong to no frame"),
        _column("frames", pa.int64(), "of a connection: frames cut, both ways"),
        _column("undecoded_frames", pa.int64(), "of a connection: frames whose body could not be decoded"),
        # only with `full`
        _column("request", pa.string(), "with full: the decoded request body as JSON"),
        _column("response", pa.string(), "with full: the decoded response body as JSON"),
    ]
)
