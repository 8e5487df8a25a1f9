"""The facts projection on bodies written by hand, and which fields have which roles."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kwsniff.config import Config
from kwsniff.spec.binary import DecodeError
from kwsniff.spec.load import catalog
from kwsniff.spec.model import ROLES, Field
from kwsniff.spec.render import HIDDEN, render
from tests.oracle.facts import NO_FACTS, Facts, PartitionFacts, decoder

ID = "01020304-0506-0708-090a-0b0c0d0e0f10"


def facts(key: int, version: int, direction: str, text: str) -> Facts:
    """Decodes hexadecimal text in the middle of a longer buffer."""
    body = bytes.fromhex(text)
    found, pos = decoder(key, version, direction, "facts")(b"\x55" + body + b"\xaa" * 50, 1, 1 + len(body))
    assert pos == 1 + len(body)
    return found


def test_a_produce_request_gives_its_topic_partition_and_the_span_of_its_records():
    found = facts(
        0, 3, "request", "ffff 0001 00007530 00000001 0003 616263 00000001 00000007 00000004 deadbeef"
    )
    row = PartitionFacts("abc", None, 7, None, None, 30, 34)
    assert found == NO_FACTS._replace(acks=1, topics=["abc"], partitions=[row])


def test_null_records_have_no_span():
    found = facts(0, 9, "request", "00 0000 00007530 02 04616263 02 00000007 00 00 00 00")
    assert found.partitions == [PartitionFacts("abc", None, 7, None, None, -1, -1)]
    assert found.acks == 0


def test_a_produce_response_gives_errors_base_offsets_and_throttling():
    partition = "00000007 {} 000000000000002a ffffffffffffffff 0000000000000000"
    both = partition.format("0000") + partition.format("0006").replace("00000007", "00000008")
    found = facts(0, 5, "response", f"00000001 0003 616263 00000002 {both} 00000064")
    assert (found.error_code, found.error_count, found.throttle_ms) == (6, 1, 100)
    assert found.partitions == [
        PartitionFacts("abc", None, 7, 0, 42, -1, -1),
        PartitionFacts("abc", None, 8, 6, 42, -1, -1),
    ]


def test_a_produce_response_may_name_new_leaders_in_tagged_fields():
    partition = "00000007 0006 ffffffffffffffff ffffffffffffffff ffffffffffffffff 01 00"
    leader = "01 00 09 00000002 00000005 00"
    endpoint = "01 00 0f 02 00000002 04687474 00002384 00 00"
    found = facts(0, 10, "response", f"02 04616263 02 {partition} {leader} 00 00000000 {endpoint}")
    assert found.extra == {"brokers": [(2, "htt", 9092)]}
    assert found.error_code == 6


def test_a_fetch_request_by_topic_id_has_ids_but_no_names():
    partition = "00000003 00000000 0000000000000000 ffffffff ffffffffffffffff 00100000 00"
    found = facts(
        1,
        13,
        "request",
        "ffffffff 000001f4 00000001 03200000 00 0000004d 00000005 02 "
        f"{ID.replace('-', '')} 02 {partition} 00 01 01 00",
    )
    assert (found.topics, found.topic_ids, found.max_wait_ms) == ([None], [ID], 500)
    assert found.partitions == [PartitionFacts(None, ID, 3, None, None, -1, -1)]
    assert found.extra == {"session_id": 77, "session_epoch": 5}


def test_a_fetch_response_gives_the_span_of_each_partition():
    head = "00000000 0000 0000004d 00000001 0003 616263 00000002"
    partition = "0000000{} 0000 0000000000000064 0000000000000064 0000000000000000 ffffffff {}"
    body = f"{head} {partition.format(0, '00000002 cafe')} {partition.format(1, 'ffffffff')}"
    found = facts(1, 7, "response", body)
    start = 1 + 10 + 4 + 5 + 4 + 4 + 2 + 24 + 4 + 4
    assert found.partitions == [
        PartitionFacts("abc", None, 0, 0, None, start, start + 2),
        PartitionFacts("abc", None, 1, 0, None, -1, -1),
    ]
    assert (found.error_code, found.error_count) == (0, 0)


def test_the_first_error_in_body_order_counts():
    partition = "{} 00000000 00000001 00000000 00000000"
    topic = f"0003 0003 616263 00 00000001 {partition.format('0005')}"
    found = facts(3, 1, "response", f"00000000 00000001 00000001 {topic}")
    assert (found.error_code, found.error_count) == (3, 2)
    assert found.partitions is None


def test_asking_for_all_topics_is_not_asking_for_none():
    assert facts(3, 1, "request", "ffffffff").topics is None
    assert facts(3, 1, "request", "00000000").topics == []


def test_topics_named_twice_are_listed_once():
    assert facts(3, 1, "request", "00000003 0001 61 0001 62 0001 61").topics == ["a", "b"]


def test_the_zero_uuid_stands_for_no_topic_id():
    found = facts(3, 12, "request", f"02 {'00' * 16} 02 61 00 01 00 00")
    assert (found.topics, found.topic_ids) == (["a"], [None])


def test_group_calls_give_group_and_member():
    found = facts(12, 0, "request", "0002 6731 00000001 0003 6d2d31")
    assert (found.group_id, found.member_id) == ("g1", "m-1")
    assert facts(12, 0, "response", "001b").error_code == 27


def test_an_api_versions_request_names_the_client_library():
    found = facts(18, 3, "request", "0b 6c696272646b61666b61 06 322e332e30 00")
    assert found.extra == {"software_name": "librdkafka", "software_version": "2.3.0"}


def test_a_metadata_response_gives_brokers_and_topics():
    broker = "00000001 0001 68 00002384 ffff"
    topic = "0000 0003 616263 00 00000000"
    found = facts(3, 2, "response", f"00000001 {broker} ffff 00000001 00000001 {topic}")
    assert found.extra == {"brokers": [(1, "h", 9092)]}
    assert found.topics == ["abc"]


def test_a_message_without_roles_gives_no_facts():
    assert facts(16, 0, "request", "") == NO_FACTS


def test_strings_without_a_role_need_not_be_text():
    """A broken message text costs no latency or error code: only `full` refuses it."""
    text = "00000000 00000001 0003 616263 0000 0002 ff00"
    assert facts(37, 0, "response", text).error_code == 0
    body = bytes.fromhex(text)
    with pytest.raises(DecodeError) as refused:
        decoder(37, 0, "response", "full")(body, 0, len(body))
    assert (refused.value.code, refused.value.path) == ("text_invalid", "results[0].error_message")
    assert refused.value.offset == len(body) - 2


@pytest.mark.parametrize(
    ("text", "code", "path", "offset"),
    [
        ("0002 6731 00000001 0003 6d2d", "truncated_body", "member_id", 10),
        ("ffff 00000001 0000", "length_invalid", "group_id", 0),
        ("0002 6731 0000", "truncated_body", "generation_id", 4),
        ("0002 c328 00000001 0000", "text_invalid", "group_id", 2),
        ("fffe 00000001 0000", "length_invalid", "group_id", 0),
    ],
)
def test_a_refused_body_is_explained_by_field_and_offset(text, code, path, offset):
    body = bytes.fromhex(text)
    for projection in ("full", "facts"):
        with pytest.raises(DecodeError) as refused:
            decoder(12, 0, "request", projection)(b"zz" + body + b"\0" * 9, 2, 2 + len(body))
        assert (refused.value.code, refused.value.path, refused.value.offset) == (code, path, offset)


@pytest.mark.parametrize(
    ("key", "version", "direction", "text", "path", "offset"),
    [
        (0, 3, "request", "fffe 0001 00007530 00000000", "transactional_id", 0),
        (0, 3, "request", "ffff 0001 00007530 fffffffe", "topic_data", 8),
        (0, 3, "request", "ffff 0001 00007530 00000001 0001 61 00000001 00000007 fffffffe",
         "topic_data[0].partition_data[0].records", 23),
        (3, 1, "request", "fffffffe", "topics", 0),
        (36, 0, "response", "0000 fffe 00000000", "error_message", 2),
        (36, 0, "response", "0000 ffff fffffffe", "auth_bytes", 4),
        (36, 2, "request", "00 00", "auth_bytes", 0),
        (36, 2, "request", "8000 00", "auth_bytes", 0),
        (12, 4, "request", "00 00000000 01 00 00", "group_id", 0),
    ],
)  # fmt: skip
def test_no_length_is_less_than_that_of_null(key, version, direction, text, path, offset):
    """-1 is null where null is allowed; nothing else below 0 is a length."""
    body = bytes.fromhex(text)
    for projection in ("full", "facts"):
        with pytest.raises(DecodeError) as refused:
            decoder(key, version, direction, projection)(body + b"\0" * 99, 0, len(body))
        assert (refused.value.code, refused.value.path, refused.value.offset) == (
            "length_invalid",
            path,
            offset,
        )


def test_the_marker_of_a_nullable_struct_is_one_or_minus_one():
    head = "00000000 0000 00 00 00000000 00000bb8"
    assert facts(68, 0, "response", f"{head} ff 00").error_code == 0
    assert facts(68, 0, "response", f"{head} 01 01 00 00").topic_ids == []
    body = bytes.fromhex(f"{head} 02 01 00 00")
    for projection in ("full", "facts"):
        with pytest.raises(DecodeError) as refused:
            decoder(68, 0, "response", projection)(body, 0, len(body))
        assert (refused.value.code, refused.value.path, refused.value.offset) == (
            "value_invalid",
            "assignment",
            16,
        )


# Which fields have which roles


def every_field(fields: tuple[Field, ...]) -> list[Field]:
    return [one for field in fields for one in (field, *every_field(field.fields))]


def named_fields() -> list[tuple[int, str, Field]]:
    return [
        (api.key, direction, field)
        for api in catalog().apis.values()
        for direction in ("request", "response")
        for field in every_field(api.message(direction).fields)
    ]


def test_every_error_code_throttle_time_and_record_field_has_its_role():
    for key, direction, field in named_fields():
        where = f"{key} {direction} {field.name}, line {field.line}"
        is_error = field.type == "int16" and field.name.endswith("error_code")
        assert is_error == ("error" in field.roles), where
        assert (field.name == "throttle_time_ms") == ("throttle" in field.roles), where
        is_records = field.type == "records" and field.name != "unaligned_records"
        assert is_records == ("records" in field.roles), where


def test_all_roles_are_used():
    used = {role for _, _, field in named_fields() for role in field.roles}
    assert used == set(ROLES)


def test_metadata_and_controller_messages_do_not_list_partitions():
    keys = {key for key, _, field in named_fields() if "partition" in field.roles}
    assert {0, 1, 2, 8, 9, 21, 23, 24, 27, 28, 78, 79} <= keys
    assert not {3, 4, 5, 6, 75} & keys


def shown(key: int, version: int, direction: str, body: dict[str, Any]) -> Any:
    """A body as it is printed, with everything that may be shown."""
    return json.loads(render(key, version, direction, body, Config(full=True, records=True), []))


def test_credentials_are_marked_and_concealed():
    secret = {
        (key, direction, field.name) for key, direction, field in named_fields() if "secret" in field.roles
    }
    assert {
        (36, "request", "auth_bytes"),
        (36, "response", "auth_bytes"),
        (38, "response", "hmac"),
        (39, "request", "hmac"),
        (40, "request", "hmac"),
        (41, "response", "hmac"),
        (51, "request", "salt"),
        (51, "request", "salted_password"),
        (58, "request", "request_data"),
    } <= secret
    bodies = {"auth_bytes": b"\0user\0pass", "error_code": 0, "error_message": None}
    assert shown(36, 2, "response", bodies) == bodies | {"auth_bytes": HIDDEN}
    tokens = {"error_code": 0, "tokens": [{"token_id": "t", "hmac": b"h"}], "throttle_time_ms": 0}
    assert shown(41, 1, "response", tokens)["tokens"] == [{"token_id": "t", "hmac": HIDDEN}]
    assert tokens["tokens"] == [{"token_id": "t", "hmac": b"h"}]
    assert shown(16, 4, "response", {"groups": []}) == {"groups": []}
    record = {
        field.name for field in catalog().data("UserScramCredentialRecord").fields if "secret" in field.roles
    }
    assert record == {"salt", "stored_key", "server_key"}


def test_a_null_credential_is_shown_as_null():
    body = {"error_code": 0, "error_message": None, "auth_bytes": None}
    assert shown(36, 2, "response", body)["auth_bytes"] is None
