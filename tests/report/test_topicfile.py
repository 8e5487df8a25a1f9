"""Files that name topics."""

from __future__ import annotations

from pathlib import Path

import pytest

from kwsniff.count.topics import TopicFileError, cached_names, keep_names, read_names

HEX = "317b2929-1b1c-40d9-85be-4f42b46cfc09"
BASE64 = "MXspKRscQNmFvk9CtGz8CQ"
"""The same as `kafka-topics.sh` writes it."""


@pytest.mark.parametrize(
    "text",
    [
        f"{HEX},orders\n",
        f"uuid,name\n{BASE64},orders\n",
        f"{HEX.replace('-', '').upper()},orders\r\n# ours\r\n",
        f"Topic: orders\tTopicId: {BASE64}\tPartitionCount: 2\tReplicationFactor: 1\tConfigs: \n"
        "\tTopic: orders\tPartition: 0\tLeader: 1\tReplicas: 1\tIsr: 1\n",
    ],
)
def test_lines_and_the_output_of_kafka_topics_name_topics(tmp_path: Path, text: str) -> None:
    (tmp_path / "ids").write_text(text)
    assert read_names(str(tmp_path / "ids")) == {HEX: "orders"}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"orders,317b\n", "line 1: neither uuid,name nor a line of kafka-topics.sh"),
        (f"{HEX},orders\nnonsense\n".encode(), "line 2: neither"),
        (b"", "names no topic"),
        (b"\xff\xfe", "no text in UTF-8"),
    ],
)
def test_anything_else_is_refused_in_one_line(tmp_path: Path, data: bytes, reason: str) -> None:
    (tmp_path / "ids").write_bytes(data)
    with pytest.raises(TopicFileError, match=reason) as error:
        read_names(str(tmp_path / "ids"))
    assert "\n" not in str(error.value)
    with pytest.raises(TopicFileError, match="No such file"):
        read_names(str(tmp_path / "none"))


def test_what_a_live_session_saw_is_there_for_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cached_names() == {}
    keep_names({HEX: "orders"})
    keep_names({"00000000-0000-0000-0000-000000000002": "payments"})
    assert cached_names() == {HEX: "orders", "00000000-0000-0000-0000-000000000002": "payments"}
    (tmp_path / "kwsniff" / "topic-ids.csv").write_bytes(b"\x00")
    assert cached_names() == {}
    keep_names({HEX: "orders"})
    assert cached_names() == {HEX: "orders"}


def test_who_may_not_write_there_goes_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after `live --user nobody`: nothing below the place can even be looked at."""
    (tmp_path / "kwsniff").write_text("a file where the directory would be")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    keep_names({HEX: "orders"})
    assert cached_names() == {}
