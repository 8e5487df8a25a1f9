"""What an event can say: the kinds of event, the status of a call, and every anomaly code with its meaning.

The columns that carry them are declared in `kwsniff.rows.schema`.
"""

from __future__ import annotations

CALL, ANOMALY, CONNECTION, EXCHANGE = "call", "anomaly", "connection", "exchange"
TLS_APIS = (("TLS exchange", -1), ("TLS fetch", -2))
"""What exchanges have for the name and the number of their API: any, and those that look like Fetches."""

STATUSES = {
    "ok": "answered, and no error code in the response",
    "error": "answered with at least one non-zero error code",
    "no_reply_expected": "a Produce request with acks=0, which brokers do not answer",
    "unanswered": "no response was captured; `unanswered_because` says what is known of the reason",
    "orphan": "a response whose request was not captured",
    "undecoded": "request and response were paired, but a body could not be decoded",
    "truncated": "bytes of the request or response are missing: the capture lacks them or, where "
    "`closed_by` says who ended the connection, they were never sent",
    "estimated": "an exchange of a TLS connection without keys: what is taken for a request and its response",
}

UNANSWERED_REASONS = {
    "connection_reset": "an RST ended the connection first",
    "connection_closed": "a FIN, a new SYN or silence ended the connection first",
    "capture_ended": "the capture ended first",
    "timeout": "it waited longer than `request_timeout` and the connection is still open (live only)",
    "limit": "kwsniff gave the request up to keep within a limit, see the anomaly `outstanding_limit`",
    "gap_in_responses": "bytes are missing from the response stream, the response may have been among them",
}

CLOSED_BY = {
    "client_fin": "the client sent the first FIN",
    "client_rst": "the client reset the connection, and nobody had sent a FIN",
    "broker_fin": "the broker sent the first FIN",
    "broker_rst": "the broker reset the connection, and nobody had sent a FIN",
}

SECURITY = {
    "plaintext": "Kafka frames were seen in the clear",
    "tls": "TLS records, not decrypted",
    **{f"TLS 1.{minor}": f"TLS 1.{minor}, decrypted with keys that were given" for minor in range(4)},
    "unknown": "neither was recognised",
}

ANOMALIES = {
    # Capture files
    "capture_unreadable": "a capture in a directory cannot be read and was passed over",
    "capture_cut_short": "the file ends inside a packet, as after a killed capture",
    "capture_damaged": "bytes of the file are no packet record; reading went on at the next one found",
    "packet_malformed": "a packet's headers contradict its length",
    "link_type_unknown": "packets of a link layer that kwsniff does not know were passed over",
    "fragment_lost": "IP fragments never became a whole packet",
    # TCP
    "gap": "bytes of a stream are missing from the capture",
    "overlap_differs": "a retransmission carried other bytes than the first copy, which was kept",
    "reorder_limit": "more bytes waited behind a hole than `max_reorder_bytes`; the hole was given up",
    "time_backwards": "packet time ran backwards by more than a second",
    "clocks_differ": "the two directions were stamped by clocks that differ: a response is earlier than its "
    "request, or a SYN-ACK than its SYN; times between the directions are off by as much",
    # TLS
    "tls_record_unreadable": "a TLS record does not open, although others of its connection do",
    # Frames
    "resynchronised": "after a gap or at a late start, bytes were skipped until the next plausible header",
    "frame_size_invalid": "a length prefix that no Kafka frame can have",
    "frame_too_large": "a frame longer than `max_connection_bytes` was not kept; its header was read",
    "frame_incomplete": "the connection or the capture ended inside a frame",
    "buffer_limit": "frames in progress exceeded `max_buffered_bytes`, the largest was not kept; or, with "
    "--full, bodies of requests in flight a quarter of it; the latest is not shown",
    "not_kafka": "a connection on a Kafka port, or one that began like Kafka, carries something else",
    # Calls
    "unknown_api": "a request with an API key outside the known ones",
    "unknown_version": "a request with an API version outside the known ones",
    "header_malformed": "a request or response header that could not be read",
    "correlation_id_reused": "a request repeats the correlation id of one still waiting",
    "response_out_of_order": "a response overtook an older request of its connection",
    "response_before_request": "the response was captured before its request",
    "reply_to_acks_0": "a response to a Produce request with acks=0, which wants none",
    "outstanding_limit": "more requests waited than `max_outstanding` (the oldest was given up) or, in all "
    "connections, than `max_outstanding_total` (those of the connection with most of them were)",
    "connection_limit": "more connections than `max_connections`; the most silent one was closed",
    # Bodies
    "truncated_body": "a field reaches beyond the end of its message",
    "trailing_bytes": "bytes are left over after the last field",
    "varint_too_long": "a variable-length integer of more bytes than its type allows",
    "length_invalid": "a negative length where the field may not be null",
    "array_too_long": "an array that claims more elements than bytes are left",
    "element_limit": "a body with more array elements than `max_elements`; it was not decoded",
    "text_invalid": "a string that is not UTF-8",
    "value_invalid": "a marker byte, such as that of a nullable struct, with a value outside its set",
    "nesting_limit": "record sets nested deeper than `max_nesting`",
    # Records
    "crc_mismatch": "the CRC of a record batch is not that of its bytes",
    "batch_malformed": "a record batch whose own header contradicts itself",
    "codec_unknown": "a compression codec outside the known ones",
    "codec_failed": "a compressed batch that its codec refuses",
    "decompressed_size_limit": "a batch decompresses to more than `max_decompressed_bytes`",
    "decompression_ratio_limit": "a batch expands by more than `max_decompression_ratio`",
}


MAX_TOPIC = 249
"""The longest name that Kafka lets a topic have. Where a longer one would be said once for each partition,
only so much of it is: a message of 40 KB could name it a thousand times."""
