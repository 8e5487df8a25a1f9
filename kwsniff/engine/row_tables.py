"""Tables of what bodies say (programs, registers, texts, lists, and the fields that requests and calls get),
of what is told, and of connections.

`kwsniff.engine.tables` takes them in; what a field is, stands beside it. Fields for roles follow from the
columns of calls that declare one (`kwsniff.rows.schema`).
"""

from __future__ import annotations

from collections.abc import Iterable

from kwsniff.native.rowcopies import COUNTER, TEXT, Field, Spec, counter, nullable, ref, text, unknown
from kwsniff.rows.schema import COLUMNS, OF_RESPONSE
from kwsniff.spec import instructions as i
from kwsniff.spec.model import ROLES

UNKNOWN = -(1 << 40)
"""No correlation id was seen before: clients may use any number, some do use -1."""
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
        what="see kwsniff.engine.notes", side="end it is about", client="end of the client, -1 while unknown",
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
        hello=text("records of a TLS handshake"), hello_time="", agreed_time="", data_time="", exchanges="", doubtful="",
        client_records="", broker_records="", client_last_record="", broker_last_record="",
    ),
    Spec(
        "calls",
        "a call that is over",
        order="place in the input", conn="row of its connection", number="its number",
        capture="number of the capture file", client="end of the client",
        key=unknown("API, or EXCHANGE"), version=unknown("version"), correlation_id=nullable("correlation id"),
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


# Connections, and what a part of the input has to remember of them.

CONNECTIONS = Spec(
    "conns",
    "a TCP connection; end a is the one with the lower address",
    a_hi="address of end a, upper half", a_lo="lower half", b_hi="of end b", b_lo="lower half",
    a_port="port of end a", b_port="port of end b",
    next="next of the same hash, or next free",
    number="place in the input of its first packet, from 1; 0 if the row is free, negative if it was taken out",
    state="see STATES",
    client="end of the client, 0 or 1; -1 while unknown",
    ports="bit 0: end a is on a Kafka port, bit 1: end b; bit 2: neither, but one began like a client",
    capture="number of the capture file of its latest packet",
    first_time="of its first packet", last_time="latest packet time",
    first_packet="number of the first packet",
    last_packet=unknown("number of the latest packet"), last_order=unknown("its place in the input"),
    syn_time=unknown("of the SYN"), syn_ack_time=unknown("of the SYN-ACK"),
    early_syn_ack=unknown("of a SYN-ACK that came before the SYN, -1 if none"),
    client_time=unknown("of the ACK that came before the SYN-ACK, -1 if none"),
    handshake=unknown("from SYN to the ACK that ends it"),
    reset_time=unknown("of an RST that has not closed it yet"), reset_order=unknown("its place"),
    closed_by="0 unknown, 1 client, 2 broker, with 4 for RST, 8 for FIN",
    closed_time="packet time of that",
    syn="1: a SYN was seen", fin="1: a FIN was seen", rst="1: an RST was seen",
    copies=counter("segments that the capture holds twice"),
    alert=unknown("256 * level + description of the first TLS alert in the clear, -1 if none"),
    alert_side="end that sent it",
    backwards="1: time ran backwards", skewed="1: the clocks of its directions differ",
    ended_inside="bit 0: a request ends where the connection did, and nothing of it is missing, bit 1: a response",
    step="how far it was closed, see `kwsniff.engine.connections`",
    ending="reason for which it is being closed, see REASONS; 0 if it is not",
    list="which of lists it is in", listed="place in the input where it came to its end",
    silent_before="neighbour that was silent longer", silent_after="neighbour that spoke later",
    older="neighbour with a lower number", newer="neighbour with a higher one",
    held_first=ref("pieces", "first piece held while it is not judged"), held_last=ref("pieces", "last one"),
    held_bytes="bytes of them", held="how many",
    judged="bytes held when it was judged in vain", tries="how often what was held was let go",
    pending_first=ref("pieces", "first anomaly that waits for a verdict (pieces)"), pending_last=ref("pieces", "last one"),
    pending_notes="how many",
    held_pending="1: the item at hand was held and is to be judged",
    first_request=ref("requests", "request in flight that came first"), last_request=ref("requests", "the one that came last"),
    in_flight="requests in flight",
    unordered="1: correlation ids of the requests in flight may not ascend; until none is in flight",
    first_unasked=ref("requests", "oldest remembered request without reply"), last_unasked=ref("requests", "latest"), unasked="how many",
    first_early=ref("early", "oldest response without request"), last_early=ref("early", "latest"), early="how many",
    response_gap="1: response bytes were lost since the last call",
    answered=Field("correlation id of the latest answered request, UNKNOWN if none", null=UNKNOWN),
    raw_tokens="1: SASL tokens follow that are no messages",
    raw_waiting="such tokens of the client without the broker's",
    mechanism=text("SASL mechanism"), user=text("SASL user"), tokens=counter("SASL tokens seen"),
    software=text("client library"), software_version=text("its version"),
    client_id=Field("latest client id, -1 null, -2 none seen", TEXT, -2),
    response_end=unknown("time at which the latest response ended"),
    throttled_until=unknown("time until which the broker said it mutes the connection"),
    undecoded=counter("frames with an undecoded body"),
    frames=counter("frames cut, both ways"),
    proven="1: content proved that it is Kafka; before that it tells no calls",
    giving="1: it is giving up what it holds",
    turned="1: the roles of its ends were turned round",
    left="of a connection that a part did not see begin, see `kwsniff.engine.resumed`: HEAD, then KNOWN",
    left_row=unknown("its row of lefts"),
    head_bytes="bytes of its head so far",
    unsure="1: whether responses were lost before the part it is not known, and would still matter",
    hello=text("TLS: records of its handshake, before each the end that sent it"),
    hello_time=unknown("TLS: of the client's hello"), agreed_time=unknown("of the broker's"), data_time=unknown("of the first request"),
    exchanges=counter("TLS: exchanges told"), doubtful=counter("those that may be paired wrongly"),
    fresh="TLS: exchanges since the last silence", merged="TLS: 1: among them was one without a request of its own",
    tls_1_3=Field("1: the version is TLS 1.3, as far as is known", null=1),
    overhead=Field("TLS: bytes of the body of a record that are no plaintext", null=17),
    finished="TLS 1.3: bytes of the body of a record with a Finished",
    secured=Field("TLS 1.3: 1: the client's Finished went by", null=1),
    tickets="TLS 1.3: 1: a session ticket of the broker is to come",
    reply=ref("requests", "TLS: request that the response in progress answers"), reply_first="packet time of its first byte",
    reply_last="of its last", reply_packet="packet that completed that", reply_size="bytes of plaintext", reply_head="of its first record",
    reply_pieces="records", silent="TLS: above 0: its requests want no answer; 1 and how many came nevertheless",
    quiet="TLS: silences in a row while something waited, with answers between them", quiet_until="when the last one ended",
    usual="TLS: mean time from the latest request to the next response", wait="TLS: latest long latency", wait_size="bytes of its request",
    fetch_a="TLS: bytes of a request that was a Fetch", fetch_b="of an earlier one", fetch_c="the same", fetch_d="the same",
    known_since=unknown("place of the first answer to a request of the part, -1 if none"),
    stray_low=Field("lowest correlation id of its responses without request", null=-UNKNOWN), stray_high=Field("highest one", null=UNKNOWN),
    syns="SYNs that began no new connection",
)
SIDES = Spec(
    "sides",
    "one direction of a connection: row 2 * connection + end",
    next_seq=unknown("sequence number of the next byte wanted, -1 until the first segment"),
    offset="bytes of the stream before it, gaps included",
    from_start="1: the first byte of the stream was captured",
    isn=unknown("sequence number of the SYN, -1 if not seen"),
    fin_at=unknown("offset of the FIN, -1 if not seen"), rst_at=unknown("offset of an RST that may be taken, -1 if none"), rst_time=unknown("its time"),
    born=unknown("TCP timestamp of the SYN, -1 if none"), oldest=unknown("lowest TCP timestamp of its segments, in a part"),
    syn_next=unknown("sequence number behind a SYN that nobody has answered yet and that is none of this connection, -1 if none"),
    syn_ack=unknown("what it acknowledged, -1 if it was no SYN-ACK"), syn_time=unknown("its time"),
    syn_tsval=unknown("its TCP timestamp"),
    packets=counter("packets from this end"), bytes=counter("payload bytes from it"),
    missing=counter("bytes that the capture lacks"), retransmitted=counter("payload bytes that were seen before"),
    again=counter("segments of them, without keep-alives and copies"),
    zero_windows=counter("how often it closed its window"), shut="1: its window is closed",
    acked=unknown("highest offset that the other end acknowledged, -1 if none"),
    doubted=unknown("sequence number behind a segment from this end that acknowledged what nobody saw, -1 if none"),
    hole_packets="packets of the connection when the first hole opened", hole_time="and its time",
    wait_first=ref("pieces", "first piece behind a hole"), wait_last=ref("pieces", "last one"), waiting="how many",
    waiting_bytes="bytes they take",
    spoken="1: payload of this end was captured",
    history="bytes kept of what was delivered last, to compare retransmissions with",
    history_at=ref("arena", "where in the arena, -1 if none"), history_room="bytes taken there",
    synchronised="1: it is known where frames begin",
    lost="1: it was known once",
    buf=ref("arena", "where the frame in progress, or what is searched, lies in the arena; -1: nowhere"),
    room="bytes there", have="bytes used",
    block="where its block in the arena begins", block_room="bytes of that",
    size="bytes of the frame in progress with its length, 0 while unknown",
    got="bytes of it that went by, lost ones included",
    broken="1: bytes of it are missing or not kept",
    first_time=unknown("time of its first byte"), frame_time=unknown("time of the packet that came last"),
    frame_order=unknown("place of that packet"), frame_packet=unknown("its number"),
    frames=counter("frames cut"), resynchronised=counter("how often framing was found again"),
    skipped=counter("bytes that belong to no frame"), skipped_before="of them when framing was last found",
    latest=Field("correlation id of the latest request, UNKNOWN if none", null=UNKNOWN),
    unread="TLS: bytes that belong to no record since the last one",
    data_time="TLS: packet time of its latest record with data", data_before="of the one before", data_size="plaintext of the latest",
    head="TLS: plaintext of the first record of its message in progress", pieces="records of that so far",
    apart="TLS: 1: that began after a pause, or after the other end", gathers="TLS: 1: it writes messages in pieces",
    prefix="TLS: 1: a record with the length comes first", full="TLS: 1: its latest record was full", ramp="TLS: records so far, up to RAMP",
    trailer="TLS: plaintext of the small record that ends its messages, 0 if unknown", trailer_once="of one that was seen once",
    header="TLS: plaintext of the first record of messages of several, 0 if unknown", header_once="of one that was seen once",
    padding=unknown("TLS 1.3: bytes by which its records are longer than they need be"),
    records=counter("TLS: records of application data"), last_record="content type << 16 | bytes of the latest one of any type",
    searched="bytes of the buffer that were searched in vain",
    hope="bytes that what is searched would have if a response begins there, 0 if none may",
    assumed="1: framing was found by what bytes look like, and no frame has borne it out yet",
)
COUNTED, COUNTED_OF_SIDES = CONNECTIONS.of(COUNTER), SIDES.of(COUNTER)
"""What is counted from the beginning of a connection, of it and of its directions."""

PART_SPECS: list[Spec] = [
    Spec(
        "marks",
        "what a part has to remember of a segment",
        kind="HEAD_: it is of a head, OPENED: it opened a connection, SWEPT: silent connections were looked for,"
        " SPARE_: it is of a quiet connection",
        row="of segments", conn="of conns", number="of the connection", order="place in the input",
        time="of the sweep; of a quiet connection its row of lefts",
    ),
    Spec(
        "lefts",
        "a connection that a part did not see begin, from the segment on at which its state was known",
        conn="row of conns", number="of the connection", order="place of that segment",
        digest="of its state then",
        quiet="whether the broker had answered nothing yet, see QUIETS", time="of that segment",
        latest="correlation id of the latest request then", spare="1: all its segments since are kept",
        verdict="whether it is what it was taken for, see VERDICTS",
        before="row of the connection that it goes on with", over="1: it ended in the part",
        software="its text then (as `print_of` has it)", software_version="the same", user="the same",
        mechanism="the same",
        last_software="as it ended or the part did", last_version="the same", last_user="the same",
        last_mechanism="the same",
        backwards="as of the connection then", last_backwards="at its end",
        skewed="as of the connection then", last_skewed="at its end",
        throttled_until="as of the connection then",
        **dict.fromkeys(COUNTED, "then"),
        **{f"{end}_{name}": f"of end {end} then" for end in "ab" for name in ("offset", *COUNTED_OF_SIDES)},
        stray_low="lowest correlation id of the responses without request since", stray_high="highest one",
        syns="SYNs that began no new connection since",
        a_oldest="lowest TCP timestamp of end a since, -1 if none", b_oldest="of end b",
        by_end="end whose SYN began the next connection, -1 if none", by_seq="sequence number of that",
        unsteady="bit 0: framing of end a was lost since, bit 1: of end b",
        waiting="requests in flight as it ended or the part did",
        gap="1: whether responses were lost before that segment was not known then, 2: and it was asked for",
    ),
]
# fmt: on
