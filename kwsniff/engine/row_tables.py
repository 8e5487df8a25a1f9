"""Tables of what bodies say (programs, registers, texts, lists, and the fields that requests and calls get)
and of what is told.

`kwsniff.engine.tables` takes them in; what a field is, stands beside it. Fields for roles follow from the
columns of calls that declare one (`kwsniff.rows.schema`).
"""

from __future__ import annotations

from collections.abc import Iterable

from kwsniff.native.rowcopies import Spec, nullable, ref, text, unknown
from kwsniff.rows.schema import COLUMNS, OF_RESPONSE
from kwsniff.spec import instructions as i
from kwsniff.spec.model import ROLES

_COLUMNS = [column for column in COLUMNS if column.role]
KEPT = (
    *(column.role for column in _COLUMNS if column.whose != OF_RESPONSE), "coordinator_key", "coordinator_type",
)  # fmt: skip
"""Roles of a request's body that it keeps while it waits."""


def _said(roles: Iterable[str]) -> dict[str, str]:
    """A field for what a body says once in each of these roles."""
    return {role: (text if role in i.TEXTS else nullable)(ROLES[role][1]) for role in roles}


# fmt: off
_RESOURCE = {
    "type": nullable("type"), "name": text("name"), "error": nullable("error code"), "detail": text("detail"),
}
_BROKER = {"node": nullable("its id"), "host": text("name or address"), "port": nullable("port")}
_PARTITION = {
    "name": text("topic"), "uuid": text("topic, of kind UUID"),
    "partition": "partition index", "error": nullable("error code"),
    "records": nullable("records, NONE if unknown or without record data"), "bytes": nullable("of record data"),
    "codecs": "codecs + 1 in order of appearance, 4 bits each, the first lowest; 0 for none",
    **{role: nullable(ROLES[role][1]) for role in i.ROW_NUMBERS},
}
_TOPIC = {"name": text("name"), "uuid": text("uuid, of kind UUID")}
BODY_SPECS: list[Spec] = [
    Spec(
        "apis",
        "an API, by its key",
        first="row of layouts of its lowest version, -1 if unknown",
        low="lowest version", high="highest version, -1 if unknown",
    ),
    Spec(
        "layouts",
        "a version of an API",
        key="API", version="version",
        request="row of programs for requests, -1 until it is loaded",
        response="row of programs for responses, -1 until it is loaded",
        client_id="1: the request header has a client id",
        flexible_request="1: the request header ends with tagged fields",
        flexible_response="1: the response header ends with tagged fields",
        downgraded="row of layouts that an answer of error 35 follows, whatever was asked for; or -1",
        tokens="1: SASL tokens that are no messages follow the response",
        acks_zero="1: the request may say that it wants no response",
        answered_zero="1: the response may carry correlation id 0",
        held="nanoseconds for which the broker may hold the request, whatever it says",
    ),
    Spec(
        "programs",
        "what an event takes from a message",
        start="row of code where it begins", registers="how many it uses",
        flags="HAS_… of kwsniff.spec.instructions", columns="columns that a row of partitions can have, a bit each",
    ),
    Spec("code", "an instruction", op="operation", a="operand", b="operand", c="operand", d="operand"),
    Spec(
        "facts",
        "what a body says: row 0 of the request, row 1 of the response at hand",
        clean="1: it was decoded",
        code="what is wrong with it, a place in kwsniff.rows.events.ANOMALIES; 0 if nothing",
        offset="bytes of the body before what is wrong, or a little less",
        trailing="bytes left behind the last field",
        flags="what the message has at all, HAS_…; 0 if it was not decoded",
        columns="columns that its rows can have",
        error=nullable("first error code that is not 0, else 0; NONE if the message has none"),
        errors="error codes that are not 0",
        **_said(role for role in (*i.TEXTS, *i.NUMBERS) if role != "auth_bytes"),
        token=nullable("position of the SASL token in the data, NONE without one"),
        token_end=nullable("position behind it"),
        name_first="first row of names", names="how many", row_first="first row of rows", rows="how many",
        brokers="rows of brokers", resources="rows of resources",
        records=nullable("records in all; NONE if the message has none, or a compressed wrapper hides them"),
        record_bytes=nullable("bytes of record data, NONE if the message has none"),
        damaged="rows whose record data is damaged",
        tail="1: the record data of each row ends where its partition does, 2: and is one batch; -1: not so",
    ),
    Spec(
        "reading",
        "how the body at hand is read; there is one row",
        keep="1: what it says is kept, 0: it is only seen whether it decodes",
        lists="1: topics, partitions and resources are wanted", named="1: names of topics are wanted",
        verify="1: CRCs of record batches are checked", left="elements of arrays that it may still have",
        begin="position of its first byte",
    ),
    Spec("names", "a topic of the bodies at hand", **_TOPIC),
    Spec(
        "rows",
        "a partition of the bodies at hand",
        **_PARTITION,
        batches="whole batches in its record data", mismatches="batches with a wrong CRC",
        damage="bit 0: the request's last batch is cut short, 1: codec unknown, 2: batch malformed",
        taken="1: the row of a request that is done with",
    ),
    Spec("brokers", "an advertised broker", **_BROKER),
    Spec("resources", "a resource that a call names", **_RESOURCE),
    Spec(
        "texts",
        "a text or uuid, each once",
        at="where it begins in text_bytes", size="bytes", kind="0 text, 1 uuid", hash="of its bytes",
        mark="1: somebody refers to it, while texts are compacted",
        moved="its number afterwards, -1 if it is gone",
        stamp="of the call in which the topic came with a uuid",
    ),
    Spec("places", "a place of the hash table over names or rows of the call at hand",
         stamp="who wrote it", at="row"),
    Spec(
        "store",
        "what is used of the tables of bodies; there is one row",
        texts="rows of texts", text_bytes="bytes of text_bytes", stamp="of the latest use of places",
        words="used or free words of the heap",
        words_live="words of the heap in use, rounded up to their blocks",
        named="quarter kilobytes of the texts that requests in flight refer to",
        call_names="rows of call_names", call_rows="rows of call_rows",
        call_resources="rows of call_resources", call_brokers="rows of call_brokers",
        programs="rows of programs", code="rows of code",
    ),
    Spec("word_bins", "free blocks of the heap, by size", first="where the first is, -1 if none"),
    Spec("call_names", "a topic of a call, in the order of calls", **_TOPIC),
    Spec("call_rows", "a partition of a call, in the order of calls", **_PARTITION),
    Spec("call_resources", "a resource of a call, in the order of calls", **_RESOURCE),
    Spec("call_brokers", "a broker that a call advertises, in the order of calls", **_BROKER),
]

REQUEST_FIELDS = {
    "flags": "of its body, HAS_…; 0 if it was not decoded", "columns": "columns that its rows can have",
    **_said(KEPT),
    "software": text("the client's library, as this request says"), "software_version": text("its version"),
    "records": nullable("as of facts"), "record_bytes": nullable("as of facts"),
    "words": ref("words", "where its lists are in the heap"),
    "names": "topics there", "rows": "partitions there", "resources": "resources there",
    "named": "quarter kilobytes of the texts that it refers to",
}
"""What a request keeps of its body while it waits."""

CALL_FIELDS = {
    "error": nullable("as of facts of the response"), "errors": nullable("NONE where error is"),
    **_said(column.role for column in _COLUMNS),
    "names": "rows of call_names, 0 for null", "uuids": "1: the list of topic ids is not null",
    "rows": "rows of call_rows, 0 for null",
    "asked": "rows of call_rows behind those: of a Fetch, what only the request names; without an offset it "
    "leaves the session",
    "resources": "rows of call_resources, 0 for null", "brokers": "rows of call_brokers, 0 for null",
    "tail": "as of facts of the response",
    "records": nullable("records in all"), "record_bytes": nullable("bytes of record data"),
}
"""What a call gets from the bodies of request and response."""

BODY_ARRAYS = {"text_bytes": "bytes", "text_slots": "words", "registers": "longs", "words": "longs"}
"""Tables without fields; `longs` are 64-bit integers. `text_slots` has texts + 1, 0 for none."""

BODY_WANTS = (
    "texts", "text_bytes", "text_slots", "names", "rows", "brokers", "resources", "places", "words",
    "registers", "call_names", "call_rows", "call_resources", "call_brokers",
)
"""Tables that may have to grow."""


# Tables of what becomes events: calls, anomalies, connections that are over, bodies that are shown,
# decisions.
#
# `kwsniff.engine.tables` takes them in.

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
        client_missing="", broker_missing="",
        rank="of run when it was told", left="of the connection", left_row="of the connection",
        syn="", fin="", rst="", handshake="", closed_by="",
        client_again="", broker_again="", client_zero_windows="", broker_zero_windows="", copies="", alert="", alert_side="",
        client_id="", first_packet="", last_packet="",
        mechanism="", user="", resynchronised="", skipped="", frames="", undecoded="",
    ),
    Spec(
        "calls",
        "a call that is over",
        order="place in the input", conn="row of its connection", number="its number",
        capture="number of the capture file", client="end of the client",
        key=unknown("API"), version=unknown("version"), correlation_id=nullable("correlation id"),
        client_id=text("-1 null, -2 none"),
        first_time=unknown("first byte of the request"), last_time=unknown("last byte of it"),
        response_first=unknown("first byte of the response"), response_last=unknown("last byte of it"),
        size=nullable("bytes of the request, NONE if not captured"),
        response_size=nullable("bytes of the response"),
        packet=unknown("packet that completed the request"), response_packet=unknown("that of the response"),
        status=unknown("OK_ and so on"), because="0, or why there is no answer",
        in_flight=nullable("requests in flight when it was sent"),
        software=text("client library"), software_version=text("its version"), user=text("SASL user"),
        response_end=unknown("time at which the response before it ended"),
        throttled_until=unknown("time until which the connection was muted when it came"),
        handshake=unknown("round trip of the handshake"),
        closed_by="as of the connection",
        open_until=unknown("until when an unanswered request waited, -1 if answered"),
        request_body=unknown("number of its body, -1 if not kept"), response_body=unknown("that of the response"),
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
