"""Bodies as JSON: what is shown with `full`, what with `records`, and what never."""

import gzip
import json
import struct
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_bytes import NOON, batch, message, nullable, record, text

from kwsniff.config import Config
from kwsniff.spec.batches import batches
from kwsniff.spec.render import _batch_header, render

FULL, RECORDS = Config(full=True), Config(full=True, records=True)
PRODUCE, FETCH, JOIN_GROUP, SYNC_GROUP, DESCRIBE_GROUPS = 0, 1, 11, 14, 15


def shown(api_key, direction, body, config=FULL, problems=None):
    line = render(api_key, 0, direction, body, config, problems)
    assert "\n" not in line
    return json.loads(line)


def produce(data, topic="orders"):
    return {"acks": -1, "topic_data": [{"name": topic, "partition_data": [{"index": 0, "records": data}]}]}


def produced(data, config=FULL, topic="orders", problems=None):
    body = shown(PRODUCE, "request", produce(data, topic), config, problems)
    return body["topic_data"][0]["partition_data"][0]["records"]


# Record data


PIECES = (
    batch(record(), 1),
    batch(record(), 1, crc=7),
    batch(record(), 1000),
    batch(b"", -1),
    batch(b"x", 1, attributes=1),
    batch(b"x", 1, attributes=7),
    batch(record(), 1, attributes=0x10),
    batch(b"", 0, attributes=0x18, ids=(5, 6, 7)),
    batch(b"", 0, attributes=0x20),
    batch(b"", 0, attributes=0x40),
    message(0),
    message(1),
    bytes(61),
    b"\xff" * 70,
)


@given(st.lists(st.sampled_from(PIECES), max_size=4), st.integers(0, 70), st.booleans())
def test_a_batch_is_shown_the_same_whether_it_is_read_at_once_or_not(pieces, cut, verify):
    data = b"".join(pieces)
    data = data[: max(len(data) - cut, 0)] if cut < 30 else data
    config = Config(full=True, verify_crc=verify)
    expected = [_batch_header(each) for each in batches(data, 0, len(data), config)]
    found = produced(data, config)
    for each in found:
        each.pop("records", None)  # control batches alone have them
    assert found == json.loads(json.dumps(expected))


def test_full_shows_batch_headers_and_no_payload():
    data = batch(record(0, b"KEY", b"VALUE", [(b"NAME", b"DATA")]), 1, base_offset=9, ids=(4, 5, 6))
    assert produced(data) == [
        {
            "base_offset": 9,
            "magic": 2,
            "size": len(data),
            "last_offset": 9,
            "codec": "none",
            "count": 1,
            "crc_ok": True,
            "timestamp_type": "create",
            "base_timestamp": NOON,
            "max_timestamp": NOON,
            "leader_epoch": 0,
            "producer_id": 4,
            "producer_epoch": 5,
            "base_sequence": 6,
            "transactional": False,
            "control": False,
        }
    ]


def test_records_shows_keys_values_and_headers():
    data = batch(record(0, b"KEY", None, [(b"a", b"\xff\0"), (b"b", None)], time=3), 1)
    [found] = produced(data, RECORDS)
    assert found["records"] == [
        {
            "offset": 7,
            "timestamp": NOON + 3,
            "key": "KEY",
            "value": None,
            "headers": [{"key": "a", "value": {"base64": "/wA="}}, {"key": "b", "value": None}],
        }
    ]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", ""),
        ("Ключ 🔑".encode(), "Ключ 🔑"),
        (b'{"a":\r\n\t1}', '{"a":\r\n\t1}'),
        (b"bell\x07", {"base64": "YmVsbAc="}),
        (b"\xc3(", {"base64": "wyg="}),
    ],
)
def test_payload_is_text_if_all_of_it_can_be_read(data, expected):
    [found] = produced(batch(record(0, None, data), 1), RECORDS)
    assert found["records"][0]["value"] == expected


def test_a_null_records_field_stays_null():
    assert produced(None) is None
    assert produced(b"") == []


def test_the_count_of_a_wrapper_comes_from_its_inside_and_its_payload_stays_there():
    inside = b"".join(message(1, b"SECRET", offset=n) for n in range(3))
    data = message(1, gzip.compress(inside), attributes=1, offset=12)
    [found] = produced(data)
    assert (found["count"], found["base_offset"], found["last_offset"]) == (3, 10, 12)
    assert "records" not in found
    [found] = produced(data, RECORDS)
    assert [r["value"] for r in found["records"]] == ["SECRET"] * 3


def test_a_partial_batch_is_shown_as_such():
    whole, part = produced(batch(record(0), 1) + batch(record(0), 1)[:40])
    assert whole["count"] == 1
    assert part == {"base_offset": 7, "magic": 2, "size": 40, "partial": True}


def test_a_transaction_marker_is_shown_although_payloads_are_not():
    marker = record(0, struct.pack(">hh", 0, 1), struct.pack(">hi", 0, 8))
    [found] = produced(batch(marker, 1, attributes=0x30))
    assert (found["control"], found["transactional"]) == (True, True)
    assert found["records"] == [
        {
            "offset": 7,
            "timestamp": NOON,
            "control": "commit",
            "value": {"message": "EndTxnMarker", "version": 0, "data": {"coordinator_epoch": 8}},
        }
    ]


def test_what_goes_wrong_inside_is_shown_and_told():
    problems = []
    good = batch(record(0), 1)
    bad = batch(b"no gzip", 1, attributes=1, base_offset=20)
    first, second, third = produced(good + bad + good, RECORDS, problems=problems)
    assert second["problem"] == "codec_failed"
    assert (len(first["records"]), second["records"], len(third["records"])) == (1, [], 1)
    assert problems == [("codec_failed", "record batch of orders at offset 20")]


def test_records_before_the_damage_are_shown():
    [found] = produced(batch(record(0, value=b"good") + b"\xff" * 12, 2), RECORDS)
    assert [r["value"] for r in found["records"]] == ["good"]
    assert found["problem"] == "varint_too_long"


def test_a_malformed_batch_ends_the_list():
    problems = []
    found = produced(bytes(100), RECORDS, problems=problems)
    assert found == [{"base_offset": None, "magic": 0, "size": 100, "problem": "batch_malformed"}]
    assert problems == []  # what a batch header tells, the summary of the records has told


def test_wrong_crcs_inside_a_wrapper_are_counted():
    problems = []
    inside = message(1, b"a", offset=0, crc=1) + message(1, b"b", offset=1)
    [found] = produced(message(1, gzip.compress(inside), attributes=1), FULL, problems=problems)
    assert (found["crc_ok"], found["crc_mismatches"]) == (True, 1)
    assert [code for code, _ in problems] == ["crc_mismatch"]


def test_bombs_in_one_message_share_its_limit():
    bomb = batch(gzip.compress(record(0, None, bytes(900_000))), 1, attributes=1)
    config = Config(records=True, max_decompressed_bytes=1_000_000)
    begun = time.thread_time()
    found = produced(bomb * 500, config)
    assert time.thread_time() - begun < 5
    assert sum(len(b.get("records", ())) for b in found) == 2
    assert found[2]["problem"] == "decompressed_size_limit"


def test_a_great_number_of_tiny_records_is_cut_at_the_limit():
    tiny = record(0, None, None)
    config = Config(records=True, max_decompressed_bytes=100_000)
    problems = []
    [found] = produced(batch(tiny * 10_000, 10_000), config, problems=problems)
    assert found["problem"] == "decompressed_size_limit"
    assert 500 < len(found["records"]) < 2000
    assert len(produced(message(0, b"") * 10_000, config)) < 500


def test_records_of_fetch_and_share_fetch_are_shown_too():
    data = batch(record(0), 1)
    for key, topic in ((FETCH, {"topic": "a"}), (78, {"topic_id": "00000000-0000-0000-0000-00000000002a"})):
        body = {"responses": [{**topic, "partitions": [{"partition_index": 0, "records": data}]}]}
        [found] = shown(key, "response", body)["responses"][0]["partitions"][0]["records"]
        assert found["count"] == 1


def test_a_snapshot_is_shown_from_its_start_only():
    def slice_at(position):
        struct_ = {"index": 0, "position": position, "unaligned_records": batch(record(0), 1)}
        body = {"topics": [{"name": "__cluster_metadata", "partitions": [struct_]}]}
        return shown(59, "response", body)["topics"][0]["partitions"][0]["unaligned_records"]

    assert slice_at(0)[0]["count"] == 1
    assert slice_at(100) == {"bytes": 70}


# Internal topics

OFFSET_KEY = struct.pack(">h", 1) + text("g") + text("t") + struct.pack(">i", 4)
OFFSET_VALUE = struct.pack(">hqi", 3, 1234, 9) + text("") + struct.pack(">q", NOON)


def test_records_of_an_internal_topic_are_decoded():
    data = batch(record(0, OFFSET_KEY, OFFSET_VALUE), 1)
    [found] = produced(data, RECORDS, "__consumer_offsets")[0]["records"]
    assert found["key"] == {
        "message": "OffsetCommitKey",
        "version": 1,
        "data": {"group": "g", "topic": "t", "partition": 4},
    }
    assert found["value"]["data"]["offset"] == 1234
    [plain] = produced(data, RECORDS, "another")[0]["records"]
    assert isinstance(plain["key"], dict | str)
    assert "message" not in plain["key"]


SCRAM_RECORD = (
    b"\1\x0b\0" + b"\6alice" + b"\1" + b"\5SALT" + b"\7STORED" + b"\7SERVER" + struct.pack(">i", 4096) + b"\0"
)


def test_credentials_in_the_metadata_log_are_never_shown():
    data = batch(record(0, None, SCRAM_RECORD), 1)
    [found] = produced(data, RECORDS, "__cluster_metadata")[0]["records"]
    assert found["value"]["message"] == "UserScramCredentialRecord"
    assert found["value"]["data"]["name"] == "alice"
    assert {found["value"]["data"][name] for name in ("salt", "stored_key", "server_key")} == {"***"}


def test_a_record_of_the_metadata_log_in_an_unknown_version_shows_its_size():
    unknown = SCRAM_RECORD[:2] + b"\x09" + SCRAM_RECORD[3:]
    [found] = produced(batch(record(0, None, unknown), 1), RECORDS, "__cluster_metadata")[0]["records"]
    assert found["value"] == {"bytes": len(unknown)}


# Other bytes

SUBSCRIPTION = struct.pack(">hi", 0, 1) + text("t") + nullable(b"USER DATA")


def test_a_subscription_is_shown_decoded():
    body = {"protocol_type": "consumer", "protocols": [{"name": "range", "metadata": SUBSCRIPTION}]}
    [found] = shown(JOIN_GROUP, "request", body)["protocols"]
    data = {"topics": ["t"], "user_data": {"bytes": 9}}
    assert found["metadata"] == {"message": "ConsumerProtocolSubscription", "version": 0, "data": data}
    [found] = shown(JOIN_GROUP, "request", body, RECORDS)["protocols"]
    assert found["metadata"]["data"]["user_data"] == {"base64": "VVNFUiBEQVRB"}


def test_what_kafka_streams_adds_to_a_subscription_is_shown_decoded():
    streams = struct.pack(">i", 1) + bytes(15) + b"\x09" + struct.pack(">ii", 0, 0)
    data = struct.pack(">hi", 0, 0) + nullable(streams)
    body = {"protocol_type": "consumer", "protocols": [{"name": "stream", "metadata": data}]}
    [found] = shown(JOIN_GROUP, "request", body)["protocols"]
    user_data = found["metadata"]["data"]["user_data"]
    assert user_data["message"] == "SubscriptionInfoData"
    assert user_data["data"]["process_id"] == "00000000-0000-0000-0000-000000000009"


def test_group_metadata_nobody_knows_shows_its_size():
    body = {"protocol_type": "other", "protocols": [{"name": "range", "metadata": SUBSCRIPTION}]}
    assert shown(JOIN_GROUP, "request", body)["protocols"][0]["metadata"] == {"bytes": len(SUBSCRIPTION)}


def test_assignments_are_shown_decoded_in_sync_group_and_describe_groups():
    assignment = struct.pack(">hi", 0, 1) + text("t") + struct.pack(">ii", 1, 6) + nullable(None)
    expected = {"assigned_partitions": [{"topic": "t", "partitions": [6]}], "user_data": None}
    assert shown(SYNC_GROUP, "response", {"assignment": assignment})["assignment"]["data"] == expected
    members = [{"member_metadata": SUBSCRIPTION, "member_assignment": assignment}]
    body = {"groups": [{"protocol_type": "consumer", "protocol_data": "range", "members": members}]}
    [member] = shown(DESCRIBE_GROUPS, "response", body)["groups"][0]["members"]
    assert member["member_assignment"]["data"] == expected
    assert member["member_metadata"]["data"]["topics"] == ["t"]


def test_other_bytes_show_their_size_or_with_records_their_content():
    assert shown(72, "request", {"metrics": b"\0\1"})["metrics"] == {"bytes": 2}
    assert shown(72, "request", {"metrics": b"\0\1"}, RECORDS)["metrics"] == {"base64": "AAE="}


# Credentials

CREDENTIALS = [
    (36, "request", {"auth_bytes": b"\0user\0PASSWORD"}),
    (36, "response", {"error_code": 0, "auth_bytes": b"v=PASSWORD"}),
    (38, "response", {"token_id": "id", "hmac": b"PASSWORD"}),
    (39, "request", {"hmac": b"PASSWORD"}),
    (40, "request", {"hmac": b"PASSWORD"}),
    (41, "response", {"tokens": [{"token_id": "id", "hmac": b"PASSWORD"}]}),
    (51, "request", {"upsertions": [{"name": "u", "salt": b"PASSWORD", "salted_password": b"PASSWORD"}]}),
    (58, "request", {"request_data": b"PASSWORD", "request_principal": None}),
    (58, "response", {"response_data": b"PASSWORD"}),
    (19, "request", {"topics": [{"configs": [{"name": "x.Secret.y", "value": "PASSWORD"}]}]}),
    (19, "response", {"topics": [{"configs": [{"name": "ssl.key.password", "value": "PASSWORD"}]}]}),
    (33, "request", {"resources": [{"configs": [{"name": "sasl.jaas.config", "value": "PASSWORD"}]}]}),
    (44, "request", {"resources": [{"configs": [{"name": "sasl.jaas.config", "value": "PASSWORD"}]}]}),
    (
        32,
        "response",
        {
            "results": [
                {
                    "configs": [
                        {
                            "name": "listener.name.x.sasl.jaas.config",
                            "value": "PASSWORD",
                            "synonyms": [{"name": "sasl.jaas.config", "value": "PASSWORD"}],
                        },
                        {"name": "plain", "is_sensitive": True, "value": "PASSWORD"},
                    ]
                }
            ]
        },
    ),
]


@pytest.mark.parametrize(("api_key", "direction", "body"), CREDENTIALS)
@pytest.mark.parametrize("config", [FULL, RECORDS], ids=["full", "records"])
def test_credentials_are_never_shown(api_key, direction, body, config):
    line = render(api_key, 0, direction, body, config)
    assert "***" in line
    for trace in ("PASSWORD", "UEFTU1dPUkQ", "AHVzZXI"):
        assert trace not in line


def test_other_settings_keep_their_value():
    body = {"results": [{"configs": [{"name": "retention.ms", "value": "1000", "is_sensitive": False}]}]}
    assert shown(32, "response", body)["results"][0]["configs"][0]["value"] == "1000"


# JSON


def test_numbers_that_json_can_hold_stay_numbers():
    body = {"a": 2**63 - 1, "b": -(2**63), "c": 0.5, "d": None, "e": True}
    assert shown(3, "response", body) == body


def test_numbers_that_json_lacks_become_null():
    assert shown(48, "response", {"a": float("nan"), "b": [{"c": float("-inf")}]}) == {
        "a": None,
        "b": [{"c": None}],
    }


def test_a_batch_whose_offsets_add_up_beyond_64_bits_is_shown():
    [found] = produced(batch(record(0, time=-(2**62)), 1, times=(-(2**63), 0)), RECORDS)
    assert found["records"][0]["timestamp"] == -(2**63) - 2**62


def test_text_is_not_escaped_beyond_need():
    assert render(3, 12, "request", {"a": "ключ\u2028\n"}, FULL) == '{"a":"ключ\u2028\\n"}'


def test_the_body_given_is_left_as_it_is():
    body = produce(batch(record(0), 1))
    before = json.dumps(body, default=bytes.hex)
    render(PRODUCE, 9, "request", body, RECORDS)
    assert json.dumps(body, default=bytes.hex) == before


def test_an_unknown_api_is_a_key_error():
    with pytest.raises(KeyError):
        render(12345, 0, "request", {}, FULL)


@given(st.binary(max_size=300), st.sampled_from(["orders", "__consumer_offsets", "__cluster_metadata"]))
def test_any_record_data_is_shown(data, topic):
    for config in (FULL, RECORDS):
        found = produced(data, config, topic)
        assert sum(b["size"] for b in found) <= len(data)
