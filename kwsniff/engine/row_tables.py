"""Tables of what bodies say (programs, registers, texts, lists, and the fields that requests and calls get)
and of what is told.

`kwsniff.engine.tables` takes them in; what a field is, stands beside it.
"""

from __future__ import annotations

from kwsniff.native.rowcopies import Spec

BODY_SPECS: list[tuple[str, str, dict[str, str]]] = [
    (
        "apis",
        "an API, by its key",
        {
            "first": "row of layouts of its lowest version, -1 if unknown",
            "low": "lowest version",
            "high": "highest version, -1 if unknown",
        },
    ),
    (
        "layouts",
        "a version of an API",
        {
            "key": "API",
            "version": "version",
            "request": "row of programs for requests, -1 until it is loaded",
            "response": "row of programs for responses, -1 until it is loaded",
            "client_id": "1: the request header has a client id",
            "flexible_request": "1: the request header ends with tagged fields",
            "flexible_response": "1: the response header ends with tagged fields",
            "downgraded": "row of layouts that an answer of error 35 follows, whatever was asked for; or -1",
            "tokens": "1: SASL tokens that are no messages follow the response",
            "acks_zero": "1: the request may say that it wants no response",
            "answered_zero": "1: the response may carry correlation id 0",
            "held": "nanoseconds for which the broker may hold the request, whatever it says",
        },
    ),
    (
        "programs",
        "what an event takes from a message",
        {
            "start": "row of code where it begins",
            "registers": "how many it uses",
            "flags": "HAS_… of kwsniff.spec.instructions",
            "columns": "columns that a row of partitions can have, a bit each",
        },
    ),
    (
        "code",
        "an instruction",
        {"op": "operation", "a": "operand", "b": "operand", "c": "operand", "d": "operand"},
    ),
    (
        "facts",
        "what a body says: row 0 of the request, row 1 of the response at hand",
        {
            "clean": "1: it was decoded",
            "code": "what is wrong with it, a place in kwsniff.rows.events.ANOMALIES; 0 if nothing",
            "offset": "bytes of the body before what is wrong, or a little less",
            "trailing": "bytes left behind the last field",
            "flags": "what the message has at all, HAS_…; 0 if it was not decoded",
            "columns": "columns that its rows can have",
            "error": "first error code that is not 0, else 0; NONE if the message has none",
            "errors": "error codes that are not 0",
            "group": "text",
            "member": "text",
            "transactional_id": "text",
            "software_name": "text",
            "software_version": "text",
            "mechanism": "text",
            "protocol_type": "text",
            "coordinator_key": "text",
            "group_protocol": "text",
            "reason": "text",
            "rack": "text",
            "throttle": "ms",
            "acks": "acknowledgements wanted, also of a body that broke after them",
            "max_wait": "ms",
            "min_bytes": "bytes that it waits for",
            "session_id": "fetch session",
            "session_epoch": "epoch in it",
            "coordinator_type": "0 group, 1 transaction, 2 share",
            "generation": "generation or member epoch",
            "validate_only": "1: nothing is to be changed",
            "token": "position of the SASL token in the data, NONE without one",
            "token_end": "position behind it",
            "name_first": "first row of names",
            "names": "how many",
            "row_first": "first row of rows",
            "rows": "how many",
            "brokers": "rows of brokers",
            "resources": "rows of resources",
            "records": "records in all; NONE if the message has none, or a compressed wrapper hides them",
            "record_bytes": "bytes of record data, NONE if the message has none",
            "damaged": "rows whose record data is damaged",
            "tail": "1: the record data of each row ends where its partition does, 2: and is one batch; -1: not so",
        },
    ),
    (
        "reading",
        "how the body at hand is read; there is one row",
        {
            "keep": "1: what it says is kept, 0: it is only seen whether it decodes",
            "lists": "1: topics, partitions and resources are wanted",
            "named": "1: names of topics are wanted",
            "verify": "1: CRCs of record batches are checked",
            "left": "elements of arrays that it may still have",
            "begin": "position of its first byte",
        },
    ),
    ("names", "a topic of the bodies at hand", {"name": "text", "uuid": "text of kind UUID"}),
    (
        "rows",
        "a partition of the bodies at hand",
        {
            "name": "topic (text)",
            "uuid": "topic (text of kind UUID)",
            "partition": "partition index",
            "error": "error code",
            "base_offset": "offset of the first record",
            "records": "records, NONE if unknown or without record data",
            "bytes": "of record data",
            "codecs": "codecs + 1 in order of appearance, 4 bits each, the first lowest; 0 for none",
            "high_watermark": "offset behind the last committed record",
            "log_start_offset": "offset of the first record kept",
            "last_stable_offset": "offset up to which transactions are decided",
            "fetch_offset": "offset asked for",
            "committed_offset": "offset committed",
            "leader_epoch": "epoch of its leader",
            "batches": "whole batches in its record data",
            "mismatches": "batches with a wrong CRC",
            "damage": "bit 0: the request's last batch is cut short, 1: codec unknown, 2: batch malformed",
            "taken": "1: the row of a request that is done with",
        },
    ),
    ("brokers", "an advertised broker", {"node": "its id", "host": "text", "port": "port"}),
    (
        "resources",
        "a resource that a call names",
        {"type": "type", "name": "text", "error": "error code", "detail": "text"},
    ),
    (
        "texts",
        "a text or uuid, each once",
        {
            "at": "where it begins in text_bytes",
            "size": "bytes",
            "kind": "0 text, 1 uuid",
            "hash": "of its bytes",
            "mark": "1: somebody refers to it, while texts are compacted",
            "moved": "its number afterwards, -1 if it is gone",
            "stamp": "of the call in which the topic came with a uuid",
        },
    ),
    (
        "places",
        "a place of the hash table over names or rows of the call at hand",
        {"stamp": "who wrote it", "at": "row"},
    ),
    (
        "store",
        "what is used of the tables of bodies; there is one row",
        {
            "texts": "rows of texts",
            "text_bytes": "bytes of text_bytes",
            "stamp": "of the latest use of places",
            "words": "used or free words of the heap",
            "words_live": "words of the heap in use, rounded up to their blocks",
            "named": "quarter kilobytes of the texts that requests in flight refer to",
            "call_names": "rows of call_names",
            "call_rows": "rows of call_rows",
            "call_resources": "rows of call_resources",
            "call_brokers": "rows of call_brokers",
            "programs": "rows of programs",
            "code": "rows of code",
        },
    ),
    ("word_bins", "free blocks of the heap, by size", {"first": "where the first is, -1 if none"}),
    ("call_names", "a topic of a call, in the order of calls", {"name": "text", "uuid": "text of kind UUID"}),
]
_OF_ONE_BODY = ("batches", "mismatches", "damage", "taken")


def _fields(table: str) -> dict[str, str]:
    return next(dict(fields) for name, _, fields in BODY_SPECS if name == table)


BODY_SPECS += [
    (
        "call_rows",
        "a partition of a call, in the order of calls",
        {name: meaning for name, meaning in _fields("rows").items() if name not in _OF_ONE_BODY},
    ),
    ("call_resources", "a resource of a call, in the order of calls", _fields("resources")),
    ("call_brokers", "a broker that a call advertises, in the order of calls", _fields("brokers")),
]

REQUEST_FIELDS = {
    "flags": "of its body, HAS_…; 0 if it was not decoded",
    "columns": "columns that its rows can have",
    "acks": "acknowledgements wanted",
    "max_wait": "ms",
    "min_bytes": "bytes that it waits for",
    "group": "text",
    "member": "text",
    "transactional_id": "text",
    "coordinator_key": "text",
    "coordinator_type": "0 group, 1 transaction, 2 share",
    "session_id": "fetch session",
    "session_epoch": "epoch in it",
    "generation": "generation or member epoch",
    "group_protocol": "text",
    "protocol_type": "text",
    "reason": "text",
    "rack": "text",
    "software": "text: the client's library, as this request says",
    "software_version": "text",
    "validate_only": "1: nothing is to be changed",
    "records": "as of facts",
    "record_bytes": "as of facts",
    "words": "where its lists are in the heap, -1 without",
    "names": "topics there",
    "rows": "partitions there",
    "resources": "resources there",
    "named": "quarter kilobytes of the texts that it refers to",
}
"""What a request keeps of its body while it waits."""

CALL_FIELDS = {
    "error": "as of facts of the response",
    "errors": "NONE where error is",
    "throttle": "ms",
    "acks": "of the request",
    "max_wait": "ms",
    "min_bytes": "bytes that it waits for",
    "group": "text",
    "member": "text",
    "transactional_id": "text",
    "generation": "generation or member epoch",
    "group_protocol": "text",
    "protocol_type": "text",
    "reason": "text",
    "rack": "text",
    "validate_only": "1: nothing was to be changed",
    "session_id": "fetch session: the response's, else the request's",
    "session_epoch": "epoch in it",
    "names": "rows of call_names, 0 for null",
    "uuids": "1: the list of topic ids is not null",
    "rows": "rows of call_rows, 0 for null",
    "asked": "rows of call_rows behind those: of a Fetch, what only the request names; without an offset it "
    "leaves the session",
    "resources": "rows of call_resources, 0 for null",
    "brokers": "rows of call_brokers, 0 for null",
    "tail": "as of facts of the response",
    "records": "records in all",
    "record_bytes": "bytes of record data",
}
"""What a call gets from the bodies of request and response."""

BODY_ARRAYS = {"text_bytes": "bytes", "text_slots": "words", "registers": "longs", "words": "longs"}
"""Tables without fields; `longs` are 64-bit integers. `text_slots` has texts + 1, 0 for none."""

BODY_WANTS = (
    "texts", "text_bytes", "text_slots", "names", "rows", "brokers", "resources", "places", "words",
    "registers", "call_names", "call_rows", "call_resources", "call_brokers",
)  # fmt: skip
"""Tables that may have to grow."""


# Tables of what becomes events: calls, anomalies, connections that are over, bodies that are shown,
# decisions.
#
# `kwsniff.engine.tables` takes them in.


# fmt: off
EVENT_SPECS: list[Spec] = [
    Spec(
        "notes",
        "an anomaly",
        order="place in the input", conn="row of its connection", number="its number",
        code="see CODES", packet="packet it was noticed in", time="packet time",
        a="what it is about", b="further", c="further",
        at="where in keep the bytes are that it is about", size="how many",
        client="end of the client, as far as it was known then",
        rank="of run when it was told", left="of its connection",
    ),
    Spec(
        "decisions",
        "what was decided of a connection, if the run is traced",
        number="of the connection", packet="number of its latest packet", time="packet time",
        what="see kwsniff.engine.trace", side="end it is about", client="end of the client, -1 while unknown",
        a="how much, or which", b="further",
        a_hi="of OPENED: address of end a, upper half", a_lo="lower half",
        b_hi="of end b", b_lo="lower half", a_port="port of end a", b_port="port of end b",
    ),
    Spec(
        "ends",
        "a connection that is over",
        order="place in the input", conn="row of the connection", number="its number",
        capture="number of the capture file",
        client="end of the client", known="1: it has a row of its own among the events",
        a_hi="address of end a, upper half", a_lo="lower half", b_hi="of end b", b_lo="lower half",
        a_port="port of end a", b_port="port of end b",
        state="as of the connection",
        first_time="of the first packet", last_time="of the last packet",
        client_packets="", broker_packets="", client_bytes="", broker_bytes="",
        client_missing="", broker_missing="", client_retransmitted="", broker_retransmitted="",
        rank="of run when it was told", left="of the connection", left_row="of the connection",
        syn="", fin="", rst="", handshake="", closed_by="",
        client_again="", broker_again="", client_shut="", broker_shut="", copies="", alert="", alert_side="",
        client_id="", first_packet="", last_packet="",
        mechanism="", user="", resynchronised="", skipped="", frames="", undecoded="",
    ),
    Spec(
        "calls",
        "a call that is over",
        order="place in the input", conn="row of its connection", number="its number",
        capture="number of the capture file", client="end of the client",
        key="API, -1 if unknown", version="version", correlation_id="correlation id",
        client_id="text, -1 null, -2 none",
        first_time="first byte of the request", last_time="last byte of it",
        response_first="first byte of the response", response_last="last byte of it",
        size="bytes of the request, NONE if not captured", response_size="bytes of the response",
        packet="packet that completed the request, -1 if none", response_packet="that of the response",
        status="OK_ and so on", because="0, or why there is no answer",
        in_flight="requests in flight when it was sent",
        software="text", software_version="text", user="text", mechanism="text",
        response_end="time at which the response before it ended, -1 if unknown",
        throttled_until="time until which the connection was muted when it came",
        handshake="round trip of the handshake, -1 if unknown",
        closed_by="as of the connection", open_until="until when an unanswered request waited, -1 if answered",
        request_body="number of its body, -1 if not kept", response_body="that of the response",
        rank="of run when it was told", left="of its connection",
        **CALL_FIELDS,
    ),
    Spec(
        "bodies",
        "a body that is to be shown",
        order="place in the input", conn="row of its connection", number="its number",
        serial="number of the body", packet="packet that completed its frame", time="packet time",
        key="API", version="version whose layout it has", direction="0 request, 1 response",
        guessed="1: it is of a newer version than is known",
        at="where in body_data it is", size="bytes",
        rank="of run when it was kept", left="of its connection",
    ),
]
# fmt: on
