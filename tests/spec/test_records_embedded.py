"""Messages inside bytes, written by hand after the protocol guide and the KIPs."""

import struct
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_bytes import nullable, text

from kwsniff.spec import embedded
from kwsniff.spec.binary import DecodeError

SUBSCRIPTION_1 = struct.pack(">hi", 1, 2) + text("a") + text("b") + nullable(b"mine") + struct.pack(">i", 1)
SUBSCRIPTION_1 += text("a") + struct.pack(">iii", 2, 0, 5)
ASSIGNMENT_0 = struct.pack(">hi", 0, 1) + text("a") + struct.pack(">ii", 1, 3) + nullable(None)


# Group members


def test_a_consumers_subscription_is_found_behind_its_version():
    found = embedded.member_metadata("consumer", SUBSCRIPTION_1)
    assert (found.message, found.version) == ("ConsumerProtocolSubscription", 1)
    assert found.data == {
        "topics": ["a", "b"],
        "user_data": b"mine",
        "owned_partitions": [{"topic": "a", "partitions": [0, 5]}],
    }


def test_a_consumers_assignment_is_found_behind_its_version():
    found = embedded.member_assignment("consumer", ASSIGNMENT_0)
    assert found.data == {"assigned_partitions": [{"topic": "a", "partitions": [3]}], "user_data": None}


def test_a_newer_subscription_is_read_as_the_newest_known():
    newest = struct.pack(">hi", 9, 0) + nullable(None) + struct.pack(">ii", 0, 7) + text("rack")
    found = embedded.member_metadata("consumer", newest)
    assert (found.version, found.data["rack_id"]) == (3, "rack")


@pytest.mark.parametrize("data", [b"", b"\0", b"\xff\xff", b"\0\1junk", b'{"host":"registry"}'])
def test_other_bytes_are_no_message(data):
    assert embedded.member_metadata(None, data) is None
    assert embedded.member_assignment(None, data) is None
    assert embedded.member_metadata("sr", SUBSCRIPTION_1) is None


# Connect

metadata = partial(embedded.decode_connect, "ConnectWorkerState")
assignment = partial(embedded.decode_connect, "ConnectAssignment")

WORKER_0 = struct.pack(">h", 0) + text("http://w1:8083/") + struct.pack(">q", 12)
TASKS = struct.pack(">i", 1) + text("sink") + struct.pack(">iii", 2, -1, 0)
HEAD = struct.pack(">h", 0) + text("leader-1") + text("http://w0:8083/") + struct.pack(">q", 12)
ASSIGNED_0 = struct.pack(">h", 0) + HEAD + TASKS
ASSIGNED_2 = struct.pack(">h", 2) + HEAD + TASKS + struct.pack(">ii", -1, 300_000)
WORKER_2 = struct.pack(">h", 2) + text("http://w1:8083/") + struct.pack(">q", 12) + nullable(ASSIGNED_2)


def test_an_eager_worker_tells_its_address_and_config_offset():
    assert metadata(WORKER_0) == {
        "version": 0,
        "url": "http://w1:8083/",
        "config_offset": 12,
    }


def test_a_cooperative_worker_also_tells_what_it_runs():
    body = metadata(WORKER_2)
    assert body["version"] == 2
    assert body["allocation"] == assignment(ASSIGNED_2)


def test_an_assignment_names_connectors_and_tasks():
    body = assignment(ASSIGNED_0)
    assert body == {
        "version": 0,
        "error_code": 0,
        "leader": "leader-1",
        "leader_url": "http://w0:8083/",
        "config_offset": 12,
        "assignment": [{"connector": "sink", "tasks": [-1, 0]}],
    }


def test_a_cooperative_assignment_adds_what_is_revoked_and_a_delay():
    body = assignment(ASSIGNED_2)
    assert (body["revoked"], body["delay_ms"]) == (None, 300_000)


def test_trailing_fields_of_a_cooperative_message_may_be_left_out():
    short = struct.pack(">h", 1) + HEAD
    assert "assignment" not in assignment(short)
    assert "allocation" not in embedded.decode_connect(
        "ConnectWorkerState", struct.pack(">h", 1) + WORKER_0[2:]
    )


def test_a_group_of_unknown_type_shows_what_fits():
    assert embedded.member_metadata(None, WORKER_2).message == "ConnectWorkerState"
    assert embedded.member_assignment(None, ASSIGNED_0).message == "ConnectAssignment"
    assert embedded.member_metadata(None, SUBSCRIPTION_1).message == "ConsumerProtocolSubscription"
    assert embedded.member_metadata("connect", WORKER_0).version == 0


@pytest.mark.parametrize("data", [WORKER_0, WORKER_2, ASSIGNED_0, ASSIGNED_2])
def test_a_cut_or_longer_connect_message_is_refused_or_lacks_optional_fields(data):
    decode = metadata if data in (WORKER_0, WORKER_2) else assignment
    whole = decode(data)
    for kept in range(len(data)):
        try:
            assert set(decode(data[:kept])) < set(whole)
        except DecodeError as error:
            code = error.code
            assert code in ("truncated_body", "array_too_long")
    with pytest.raises(DecodeError, match="trailing_bytes"):
        decode(data + b"\0")


@given(st.binary(max_size=80))
def test_any_bytes_are_a_message_or_none(data):
    for read in (embedded.member_metadata, embedded.member_assignment):
        for kind in ("consumer", "connect", None):
            found = read(kind, data)
            assert found is None or isinstance(found.data, dict)
    for topic in (*embedded.KEYED_TOPICS, *embedded.METADATA_TOPICS, "other", None):
        assert len(embedded.topic_record(topic, data, data)) == 2
    assert embedded.control_record(data, data) is None or len(data) >= 4
    embedded.streams_user_data(data)
    embedded.principal(data)


# Control records


def control(kind, value):
    return embedded.control_record(struct.pack(">hh", 0, kind), value)


def test_a_transaction_marker_tells_commit_or_abort_and_the_coordinators_epoch():
    value = struct.pack(">hi", 0, 17)
    for kind, word in ((0, "abort"), (1, "commit")):
        name, found = control(kind, value)
        assert (name, found.message, found.data) == (word, "EndTxnMarker", {"coordinator_epoch": 17})


def test_a_leader_change_states_its_version_as_its_first_field():
    # Flexible: compact arrays (length + 1), a byte of tagged fields after each struct.
    value = struct.pack(">hi", 0, 3) + b"\x02\0\0\0\3\0" + b"\x02\0\0\0\3\0" + b"\0"
    name, found = control(2, value)
    assert (name, found.message, found.version) == ("leader_change", "LeaderChangeMessage", 0)
    assert found.data["leader_id"] == 3
    assert found.data["voters"] == [{"voter_id": 3}]


def test_the_marks_around_a_snapshot_are_known():
    name, found = control(3, struct.pack(">hq", 0, 99) + b"\0")
    assert (name, found.data["last_contained_log_timestamp"]) == ("snapshot_header", 99)
    assert control(4, struct.pack(">h", 0) + b"\0")[0] == "snapshot_footer"


def test_the_quorums_version_and_voters_are_known():
    name, found = control(5, struct.pack(">hh", 0, 1) + b"\0")
    assert (name, found.data["k_raft_version"]) == ("kraft_version", 1)
    name, found = control(6, struct.pack(">h", 0) + b"\1\0")
    assert (name, found.data["voters"]) == ("kraft_voters", [])


def test_a_control_type_nobody_knows_keeps_its_number():
    assert control(9, b"") == ("unknown_9", None)
    assert embedded.control_record(None, b"") is None
    assert control(1, None) == ("commit", None)


# Internal topics


def test_a_committed_offset_is_read_from_key_and_value():
    key = struct.pack(">h", 1) + text("group") + text("topic") + struct.pack(">i", 4)
    value = struct.pack(">hqi", 3, 1234, 9) + text("") + struct.pack(">q", 1_700_000_000_000)
    found_key, found_value = embedded.topic_record("__consumer_offsets", key, value)
    assert found_key == ("OffsetCommitKey", 1, {"group": "group", "topic": "topic", "partition": 4})
    assert found_value.message == "OffsetCommitValue"
    assert (found_value.data["offset"], found_value.data["leader_epoch"]) == (1234, 9)


def test_a_tombstone_has_a_key_only():
    found_key, found_value = embedded.topic_record(
        "__consumer_offsets", struct.pack(">h", 2) + text("g"), None
    )
    assert found_key == ("GroupMetadataKey", 2, {"group": "g"})
    assert found_value is None


def test_a_transactions_state_is_read():
    key = struct.pack(">h", 0) + text("tx")
    value = struct.pack(">hqhibiqq", 0, 11, 2, 60_000, 4, -1, 5, 6)
    found_key, found_value = embedded.topic_record("__transaction_state", key, value)
    assert found_key.data == {"transactional_id": "tx"}
    assert (found_value.data["producer_id"], found_value.data["transaction_status"]) == (11, 4)


def test_a_share_groups_state_is_read():
    key = struct.pack(">h", 1) + text("g") + bytes(16) + struct.pack(">i", 2)
    found_key, _ = embedded.topic_record("__share_group_state", key, b"")
    assert (found_key.message, found_key.data["partition"]) == ("ShareUpdateKey", 2)


@pytest.mark.parametrize("topic", embedded.METADATA_TOPICS)
def test_a_record_of_the_metadata_log_is_found_by_its_frame(topic):
    # Frame version 1, type 2 (TopicRecord), version 0; a compact name, the id, no tagged fields.
    value = b"\1\2\0" + b"\4abc" + bytes(15) + b"\x07" + b"\0"
    found_key, found = embedded.topic_record(topic, None, value)
    assert found_key is None
    assert found == ("TopicRecord", 0, {"name": "abc", "topic_id": "00000000-0000-0000-0000-000000000007"})


@pytest.mark.parametrize("value", [b"", b"\1", b"\1\x7f\0rest", b"\1\2\x09\4abc", b"\xff" * 12])
def test_a_record_of_the_metadata_log_that_nobody_knows_is_none(value):
    assert embedded.topic_record("__cluster_metadata", None, value) == (None, None)
