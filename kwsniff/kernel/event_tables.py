"""Tables of what becomes events: calls, anomalies, connections that are over, bodies that are shown, decisions.

`kwsniff.kernel.tables` takes them in.
"""

from __future__ import annotations

from kwsniff.kernel.body_tables import CALL_FIELDS
from kwsniff.native.records import Spec

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
        what="see kwsniff.kernel.trace", side="end it is about", client="end of the client, -1 while unknown",
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
