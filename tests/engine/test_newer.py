"""Versions newer than those known: read by the newest known layout if that fits to the last byte.

None of these tests names a version that may become known: what is newer comes from the dissectors.
"""

from __future__ import annotations

import uuid
from struct import pack

import pytest

from kwsniff.spec.load import catalog
from tests.playbook import Play, anomaly, call, handshake, play, request, response

NEWER = {api.key: api.max_version + 1 for api in catalog().apis.values()}
PRODUCE, METADATA, DELETE_GROUPS, API_VERSIONS = 0, 3, 42, 18
NO_TAGS = b"\0"


@pytest.fixture(params=["never", "always"])
def start(request: pytest.FixtureRequest) -> Play:
    return play(kernels=request.param) >> handshake()


def compact(text: str) -> bytes:
    return bytes([len(text) + 1]) + text.encode()


def test_a_newer_version_with_the_layout_of_the_one_before_says_what_it_says(start: Play) -> None:
    asked = NO_TAGS + b"\x02" + compact("reports") + NO_TAGS
    told = NO_TAGS + pack(">i", 7) + b"\x02" + compact("reports") + pack(">h", 68) + b"\0" + NO_TAGS + NO_TAGS
    version = NEWER[DELETE_GROUPS]
    script = start >> request(DELETE_GROUPS, 1, version, asked) >> response(1, body=told)
    (
        script
        << call(
            api="DeleteGroups",
            api_version=version,
            status="undecoded",
            group_id="reports",
            error="NON_EMPTY_GROUP",
            throttle_ms=7,
            latency_us=1000.0,
            client_id="tester",
        )
        << anomaly("unknown_version", detail=f"API key {DELETE_GROUPS}, version {version}")
    ).nothing_more()


def test_it_is_shown_in_full_too() -> None:
    asked = NO_TAGS + b"\x02" + compact("reports") + NO_TAGS
    told = NO_TAGS + pack(">i", 7) + b"\x01"
    script = play(full=True) >> handshake() >> request(DELETE_GROUPS, 1, NEWER[DELETE_GROUPS], asked)
    shown = {"request": '{"groups_names":["reports"]}', "response": None}
    (
        script >> response(1, body=told) << call(status="undecoded", **shown) << anomaly("unknown_version")
    ).nothing_more()


def test_what_the_layout_does_not_fit_to_the_last_byte_says_nothing(start: Play) -> None:
    asked = NO_TAGS + b"\x02" + compact("reports") + NO_TAGS + b"\x01"
    told = NO_TAGS + pack(">i", 7)
    version = NEWER[DELETE_GROUPS]
    script = start >> request(DELETE_GROUPS, 1, version, asked) >> response(1, body=told)
    nothing = dict.fromkeys(("group_id", "error_code", "throttle_ms", "request", "response"))
    (
        script << call(status="undecoded", latency_us=1000.0, **nothing) << anomaly("unknown_version")
    ).nothing_more()


def test_an_api_versions_request_that_no_broker_knows_is_refused_with_version_0(start: Play) -> None:
    asked = NO_TAGS + compact("java") + compact("9.0") + b"\0" + pack(">i", -1) + NO_TAGS
    told = pack(">hihhh", 35, 1, API_VERSIONS, 0, 5)
    script = start >> request(API_VERSIONS, 1, NEWER[API_VERSIONS], asked) >> response(1, body=told)
    (
        script
        << call(
            api="ApiVersions",
            status="error",
            error_code=35,
            error="UNSUPPORTED_VERSION",
            software_name="java",
            software_version="9.0",
        )
        << anomaly("unknown_version")
    ).nothing_more()


def test_the_refusal_counts_although_the_request_does_not_fit(start: Play) -> None:
    told = pack(">hi", 35, 0)
    script = start >> request(API_VERSIONS, 1, NEWER[API_VERSIONS], b"??") >> response(1, body=told)
    (
        script << call(status="error", error_code=35, software_name=None) << anomaly("unknown_version")
    ).nothing_more()


@pytest.mark.parametrize(("acks", "status"), [(1, "undecoded"), (-1, "undecoded"), (0, "no_reply_expected")])
def test_whether_a_newer_produce_waits_for_its_answer_is_read_behind_the_header(
    acks: int, status: str, start: Play
) -> None:
    topic = uuid.UUID(int=5).bytes
    asked = NO_TAGS + b"\0" + pack(">hi", acks, 1000) + b"\x02" + topic + b"\x01" + NO_TAGS + NO_TAGS
    script = start >> request(PRODUCE, 1, NEWER[PRODUCE], asked)
    if acks:
        script = script >> response(1, body=NO_TAGS + b"\x01" + pack(">i", 0) + NO_TAGS)
    (script << call(api="Produce", status=status, acks=acks) << anomaly("unknown_version")).nothing_more()


def test_an_unknown_api_still_has_its_latency_and_sizes(start: Play) -> None:
    script = start >> request(METADATA, 1) >> response(1) >> request(max(NEWER) + 1, 2, 0, b"??")
    (
        script >> response(2, body=b"??")
        << call(api="Metadata", status="ok")
        << call(api_key=max(NEWER) + 1, status="undecoded", latency_us=1000.0, client_id="tester")
        << anomaly("unknown_api")
    ).nothing_more()  # fmt: skip
