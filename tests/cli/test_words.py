"""What kwsniff says where its output alone would leave people guessing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.cli.conftest import Ended, call, connection

Run = Callable[..., Ended]
Capture = Callable[..., str]
NONE = ("--where", "latency_us > 1e9")


def test_decode_says_that_the_filter_left_no_row(kwsniff: Run, capture: Capture) -> None:
    path = capture(call(), call(), connection())
    ended = kwsniff("decode", path, "-q", *NONE)
    assert (ended.code, ended.out, ended.err) == (0, "", "kwsniff: --where left none of 3 rows\n")
    assert kwsniff("decode", path, "-q", "--where", "latency_us > 1").err == ""
    assert kwsniff("decode", capture(name="empty"), "-q", *NONE).err == ""


def test_a_report_says_that_the_filter_left_no_call(kwsniff: Run, capture: Capture) -> None:
    path = capture(call(), call(), connection())
    assert kwsniff("report", path, "-q", *NONE).err == "kwsniff: --where left none of 2 calls\n"
    assert kwsniff("report", path, "-q", "--where", "latency_us > 1").err == ""
    assert kwsniff("report", capture(connection(), name="no calls"), "-q", *NONE).err == ""


HINT = "only a part (…, +n, n errors): -f jsonl or csv has all of it, --full the bodies, too"
PARTITIONS = [{"topic": "t", "partition": number} for number in range(9)]


@pytest.mark.parametrize(
    "columns",
    [{"topics": list("abcdefghi")}, {"topics": ["t"], "partitions": PARTITIONS}, {"error_count": 2}],
    ids=["topics", "partitions", "errors"],
)
def test_lines_that_cannot_show_all_say_how_to_see_it(
    columns: dict[str, object], kwsniff: Run, capture: Capture
) -> None:
    path = capture(call(**columns), call())
    assert f"kwsniff: 1 line shows {HINT}\n" in kwsniff("decode", path).err
    assert HINT not in kwsniff("decode", path, "-q").err
    assert HINT not in kwsniff("decode", path, "-f", "jsonl").err
    assert f"2 lines show {HINT}" in kwsniff("decode", path, path).err


def test_lines_that_show_all_say_nothing_of_it(kwsniff: Run, capture: Capture) -> None:
    row = call(topics=list("abcdefgh"), partitions=PARTITIONS[:8], error_count=1)
    assert HINT not in kwsniff("decode", capture(row)).err
