"""Metrics for Prometheus, read back with its own parser and compared with the same events."""

from __future__ import annotations

import re
import socket
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import parser
from prometheus_client.openmetrics import parser as openmetrics

import kwsniff
from kwsniff.config import Config
from kwsniff.live.counted import BUCKETS_US, MAX_CLIENTS, MAX_LENGTH, MAX_SERIES
from kwsniff.live.metrics import MAX_REQUESTS, Metrics, MetricsError, parsed
from kwsniff.live.session import Health
from kwsniff.run.offline import events
from tests.report import oracle
from tests.report.events import batch, call, event
from tests.samples import sample

Labels = frozenset[tuple[str, str]]
Scraped = dict[str, dict[Labels, float]]

SAMPLES = ("librdkafka-produce", "mock-errors", "throttled", "midstream", "java-groups", "ipv6")


@pytest.fixture
def metrics() -> Iterator[Metrics]:
    with_topics = Metrics("127.0.0.1:0", topics=True)
    yield with_topics
    with_topics.close()


def text_of(metrics: Metrics) -> str:
    with urllib.request.urlopen(metrics.url, timeout=10) as response:
        text: str = response.read().decode()
        return text


def scrape(metrics: Metrics) -> Scraped:
    found: Scraped = {}
    for family in parser.text_string_to_metric_families(text_of(metrics)):
        for each in family.samples:
            series = found.setdefault(each.name, {})
            labels = frozenset(each.labels.items())
            assert labels not in series, f"Prometheus refuses a scrape with {each.name} {labels} twice"
            series[labels] = each.value
    return found


def only(series: dict[Labels, float], **labels: str) -> float:
    """The sum over the series that have these labels."""
    return sum(value for found, value in series.items() if labels.items() <= set(found))


def by(rows: list[dict[str, Any]], value: Callable[[dict[str, Any]], float]) -> dict[Labels, float]:
    """Sums of `value` by API, client id and broker."""
    sums: dict[Labels, float] = {}
    for row in rows:
        address = f"[{row['broker_ip']}]" if ":" in row["broker_ip"] else row["broker_ip"]
        labels = {"api": row["api"] or "unknown", "client_id": row["client_id"] or ""}
        key = frozenset((labels | {"broker": f"{address}:{row['broker_port']}"}).items())
        sums[key] = sums.get(key, 0) + value(row)
    return sums


@pytest.fixture(params=SAMPLES)
def rows(metrics: Metrics, request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    """Events that the metrics have taken."""
    batches = list(events(sample(request.param).paths, Config()))
    for each in batches:
        metrics.add(each)
    return [row for each in batches for row in each.to_pylist()]


def test_sums_are_those_of_the_decoded_calls(metrics: Metrics, rows: list[dict[str, Any]]) -> None:
    calls = [row for row in rows if row["event"] == "call"]
    found = scrape(metrics)
    for name, value in {
        "kwsniff_requests_total": lambda row: row["status"] != "orphan",
        "kwsniff_request_bytes_total": lambda row: row["request_bytes"] or 0,
        "kwsniff_response_bytes_total": lambda row: row["response_bytes"] or 0,
        "kwsniff_records_total": lambda row: row["record_count"] or 0,
        "kwsniff_record_bytes_total": lambda row: row["record_bytes"] or 0,
        "kwsniff_throttle_seconds_total": lambda row: (row["throttle_ms"] or 0) / 1e3,
        "kwsniff_throttled_requests_total": lambda row: (row["throttle_ms"] or 0) > 0,
        "kwsniff_waited_requests_total": oracle.waits,
    }.items():
        assert found[name] == pytest.approx(by(calls, value)), name
    errors = found.get("kwsniff_errors_total", {})
    names = oracle.error_names(calls)
    assert {name: only(errors, error=name) for name in names} == names
    assert sum(errors.values()) == names.total()
    gone = [row["unanswered_because"] for row in calls if row["unanswered_because"]]
    unanswered = found.get("kwsniff_unanswered_requests_total", {})
    assert {reason: only(unanswered, reason=reason) for reason in gone} == Counter(gone)
    statuses = Counter(row["status"] for row in calls)
    assert {status: only(found["kwsniff_calls_total"], status=status) for status in statuses} == statuses
    anomalies = found.get("kwsniff_anomalies_total", {})
    codes = Counter(row["code"] for row in rows if row["code"])
    assert {dict(labels)["code"]: value for labels, value in anomalies.items()} == codes


def test_latency_buckets_count_the_calls_that_took_as_long_at_most(
    metrics: Metrics, rows: list[dict[str, Any]]
) -> None:
    took = [row for row in rows if row["latency_us"] is not None and not oracle.waits(row)]
    found = scrape(metrics)
    buckets = found["kwsniff_request_latency_seconds_bucket"]
    for bound in BUCKETS_US:
        text = f"{bound / 1e6:g}" if bound < 1_000_000 else f"{bound / 1e6:.1f}"
        under = [row for row in took if row["latency_us"] <= bound]
        assert only(buckets, le=text) == len(under), text
    assert only(buckets, le="+Inf") == len(took)
    assert sum(found["kwsniff_request_latency_seconds_count"].values()) == len(took)
    seconds = sum(row["latency_us"] for row in took) / 1e6
    assert sum(found["kwsniff_request_latency_seconds_sum"].values()) == pytest.approx(seconds)


def test_a_call_counts_for_each_topic_and_its_records_for_their_own(metrics: Metrics) -> None:
    parts = [
        {"topic": "orders", "partition": 0, "error_code": 0, "records": 3, "bytes": 300},
        {"topic": "orders", "partition": 1, "error_code": 6, "records": 2, "bytes": 200},
        {"topic": None, "topic_id": "u-2", "partition": 0, "error_code": 0, "records": 1, "bytes": 10},
    ]
    columns = {"api_key": 0, "api": "Produce", "topics": ["orders", None], "topic_ids": ["u-1", "u-2"]}
    metrics.add(batch(call(**columns, partitions=parts), call(topics=["pay"], topic_ids=["u-2"])))
    found = scrape(metrics)
    requests = found["kwsniff_topic_requests_total"]
    assert only(requests, topic="orders") == 1
    assert only(requests, topic="pay", api="Produce") == 1, "its name was learnt from Metadata"
    assert only(found["kwsniff_topic_records_total"], topic="orders") == 5
    assert only(found["kwsniff_topic_record_bytes_total"], topic="pay") == 10
    assert found["kwsniff_topic_errors_total"] == {
        frozenset({"api": "Produce", "topic": "orders", "error": "NOT_LEADER_OR_FOLLOWER"}.items()): 1
    }
    assert only(found["kwsniff_topic_request_latency_seconds_count"], topic="orders") == 1


def test_topics_are_shown_on_request_only() -> None:
    plain = Metrics("127.0.0.1:0")
    plain.add(batch(call(topics=["orders"])))
    try:
        assert "topic" not in text_of(plain)
    finally:
        plain.close()


HOSTILE = [
    'say "hi"\nkwsniff_requests_total{api="Fetch"} 1e9',
    "back\\slash",
    "back\\\\slash\\n",
    "\x1b[2J\x00\r\x85\u2028\u202e",
    "{}=,#",
    "# HELP kwsniff_requests_total nonsense",
    "\ud7ff\ue000\ufffd\U0010ffff",
    " ",
    "",
    "é" * 40_000,
]


def test_hostile_client_ids_are_one_series_each_and_break_no_line(metrics: Metrics) -> None:
    metrics.add(batch(*(call(client_id=client, topics=[client]) for client in HOSTILE)))
    text = text_of(metrics)
    assert all(char.isprintable() for line in text.split("\n") for char in line)
    clients = [dict(labels)["client_id"] for labels in scrape(metrics)["kwsniff_requests_total"]]
    assert len(clients) == len(HOSTILE)
    assert "back\\slash" in clients
    assert max(map(len, clients)) == MAX_LENGTH
    found = scrape(metrics)
    assert sum(found["kwsniff_requests_total"].values()) == len(HOSTILE)
    request = urllib.request.Request(metrics.url, headers={"Accept": "application/openmetrics-text"})
    with urllib.request.urlopen(request, timeout=10) as response:
        open_text = response.read().decode()
    parsed_ = {f.name for f in openmetrics.text_string_to_metric_families(open_text)}
    assert "kwsniff_requests" in parsed_


def test_client_ids_that_look_the_same_share_a_series(metrics: Metrics) -> None:
    metrics.add(batch(call(client_id="a\x1b"), call(client_id="a\\x1b"), call(client_id=None)))
    metrics.add(batch(call(client_id=""), call(client_id="a\x1b")))
    requests = scrape(metrics)["kwsniff_requests_total"]
    assert only(requests, client_id="a\\x1b") == 3
    assert only(requests, client_id="") == 2


def test_a_client_that_changes_its_id_is_counted_under_other(metrics: Metrics) -> None:
    count = 20 * MAX_CLIENTS
    for first in range(0, count, 50):
        metrics.add(batch(*(call(client_id=f"client-{first + number}") for number in range(50))))
    found = scrape(metrics)
    requests = found["kwsniff_requests_total"]
    assert len(requests) == MAX_CLIENTS + 1
    assert only(requests, client_id="other") == count - MAX_CLIENTS
    assert sum(requests.values()) == count
    assert found["kwsniff_label_overflows_total"][frozenset({("label", "client_id")})] == count - MAX_CLIENTS


def test_combinations_are_limited_and_keep_their_api_beyond(metrics: Metrics) -> None:
    calls = [
        call(client_id=f"c{client}", broker_ip=f"10.0.0.{broker}", error_code=6, error="NOT_LEADER")
        for client in range(60)
        for broker in range(60)
    ]
    metrics.add(batch(*calls))
    found = scrape(metrics)
    requests = found["kwsniff_requests_total"]
    assert len(requests) == MAX_SERIES + 1
    rest = {"api": "Metadata", "client_id": "other", "broker": "other"}
    assert only(requests, **rest) == len(calls) - MAX_SERIES
    assert sum(found["kwsniff_request_latency_seconds_count"].values()) == len(calls)
    errors = found["kwsniff_errors_total"]
    assert len(errors) == MAX_SERIES + 1
    assert only(errors, error="NOT_LEADER") == len(calls)


def test_apis_and_errors_nobody_knows_are_limited_too(metrics: Metrics) -> None:
    rows = [
        call(api=None if code % 2 else f"key {code}", error_code=code, error=f"UNKNOWN_{code}")
        for code in range(1, 3000)
    ]
    metrics.add(batch(*rows))
    found = scrape(metrics)
    assert len({dict(labels)["api"] for labels in found["kwsniff_requests_total"]}) <= 201
    assert only(found["kwsniff_requests_total"], api="unknown") == 1500
    assert sum(found["kwsniff_errors_total"].values()) == len(rows)
    assert len({dict(labels)["error"] for labels in found["kwsniff_errors_total"]}) <= 201


def test_events_that_are_no_calls_are_no_requests(metrics: Metrics) -> None:
    metrics.add(batch(event(event="connection"), event(event="anomaly", code="gap")))
    metrics.add(batch(event(event="anomaly", code="gap")))
    metrics.add(batch())
    found = scrape(metrics)
    assert found["kwsniff_anomalies_total"] == {frozenset({("code", "gap")}): 2}
    assert "kwsniff_requests_total" not in found


def test_health_is_shown_once_it_is_known(metrics: Metrics) -> None:
    assert "kwsniff_packets_total" not in scrape(metrics)
    second = 1_000_000_000
    metrics.tick(
        Health(
            ("lo",), 5 * second, 65 * second, packets=10, bytes=900, kernel_dropped=3, own_dropped=2,
            waiting_bytes=7, connections=4, outstanding=6,
        )
    )  # fmt: skip
    found = scrape(metrics)
    assert found["kwsniff_dropped_packets_total"] == {
        frozenset({("by", "kernel")}): 3,
        frozenset({("by", "kwsniff")}): 2,
    }
    none: Labels = frozenset()
    for name, value in {
        "packets_total": 10, "captured_bytes_total": 900, "connections": 4, "outstanding_requests": 6,
        "waiting_bytes": 7, "start_time_seconds": 5, "decoded_timestamp_seconds": 65,
    }.items():  # fmt: skip
        assert found[f"kwsniff_{name}"][none] == value, name


def test_names_follow_the_conventions(metrics: Metrics) -> None:
    metrics.add(batch(call(topics=["t"], error_code=6, error="X"), event(event="anomaly", code="gap")))
    metrics.tick(Health(("lo",), 1, 2))
    for family in parser.text_string_to_metric_families(text_of(metrics)):
        assert re.fullmatch(r"kwsniff_[a-z_]+", family.name)
        assert family.documentation.endswith(".")
        for each in family.samples:
            assert (family.type == "counter") == each.name.endswith("_total")
    assert scrape(metrics)["kwsniff_build_info"] == {frozenset({("version", kwsniff.__version__)}): 1}


# The address


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [
        (":9308", "127.0.0.1", 9308),
        ("9308", "127.0.0.1", 9308),
        ("0.0.0.0:9308", "0.0.0.0", 9308),
        ("localhost:1", "localhost", 1),
        ("[::1]:9308", "::1", 9308),
        ("[]:9308", "127.0.0.1", 9308),
    ],
)
def test_without_a_host_it_is_the_loopback_address(address: str, host: str, port: int) -> None:
    assert parsed(address) == (host, port)


@pytest.mark.parametrize(
    "address", ["", ":", "host", "::1:9308", "127.0.0.1:", ":65536", ":-1", "a:b:9308", ":9308/x", ":9 9"]
)
def test_what_is_no_address_is_refused_in_one_line(address: str) -> None:
    with pytest.raises(MetricsError, match="is no ADDR:PORT such as :9308") as raised:
        Metrics(address)
    assert "\n" not in str(raised.value)


def test_a_port_in_use_is_said_in_one_line(metrics: Metrics) -> None:
    port = metrics.url.rsplit(":", 1)[1].split("/")[0]
    with pytest.raises(MetricsError, match=rf"^cannot serve metrics on :{port}: Address already in use$"):
        Metrics(f":{port}")


def test_an_address_of_another_host_is_said_in_one_line() -> None:
    with pytest.raises(MetricsError, match=r"^cannot serve metrics on 192\.0\.2\.1:9308: .+$"):
        Metrics("192.0.2.1:9308")


def test_ipv6_loopback_is_served() -> None:
    try:
        metrics = Metrics("[::1]:0")
    except MetricsError:
        pytest.skip("no IPv6 here")
    try:
        assert metrics.url.startswith("http://[::1]:")
        assert "kwsniff_build_info" in text_of(metrics)
    finally:
        metrics.close()


# The endpoint


def test_the_endpoint_ends_with_close_and_frees_its_port() -> None:
    first = Metrics("127.0.0.1:0")
    address = first.url.split("/")[2]
    text_of(first)
    first.close()
    first.close()
    host, port = address.split(":")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), timeout=5)
    second = Metrics(address)
    second.close()


def test_clients_that_say_nothing_leave_room_and_do_not_hold_up_close(metrics: Metrics) -> None:
    host, port = metrics.url.split("/")[2].split(":")
    silent = [socket.create_connection((host, int(port)), timeout=5) for _ in range(MAX_REQUESTS - 1)]
    assert "kwsniff_build_info" in text_of(metrics)
    metrics.close()
    for each in silent:
        each.close()


def test_more_connections_than_there_are_places_are_closed_at_once(metrics: Metrics) -> None:
    host, port = metrics.url.split("/")[2].split(":")
    silent = [socket.create_connection((host, int(port)), timeout=5) for _ in range(MAX_REQUESTS)]
    with pytest.raises((ConnectionError, urllib.error.URLError)):
        text_of(metrics)
    for each in silent:
        each.close()


def test_a_client_that_sends_nonsense_is_not_heard_of_again(
    metrics: Metrics, capfd: pytest.CaptureFixture[str]
) -> None:
    host, port = metrics.url.split("/")[2].split(":")
    for sent in (
        b"\x00\xff\r\n\r\n",
        b"GET /" + b"a" * 70_000 + b"\r\n\r\n",
        b"POST / HTTP/9.9\r\n\r\n",
        b"",
    ):
        with socket.create_connection((host, int(port)), timeout=5) as client:
            client.sendall(sent)
    assert "kwsniff_build_info" in text_of(metrics)
    assert capfd.readouterr() == ("", "")


def test_every_metric_and_label_is_in_the_documentation(metrics: Metrics) -> None:
    parts = [{"topic": "t", "partition": 0, "error_code": 6}]
    failed = {"error_code": 6, "error": "NOT_LEADER_OR_FOLLOWER", "topics": ["t"], "partitions": parts}
    metrics.add(batch(call(**failed), call(unanswered_because="timeout")))
    metrics.add(batch(event(event="anomaly", code="gap")))
    metrics.tick(Health(("lo",), 1, 2))
    folder = Path(__file__).parents[2] / "docs"
    documented = "\n".join(path.read_text() for path in folder.glob("*.md"))
    rows = [line for line in documented.splitlines() if line.startswith("| `kwsniff_")]
    for family in parser.text_string_to_metric_families(text_of(metrics)):
        name = family.name + ("_total" if family.type == "counter" else "")
        (row,) = [line for line in rows if f"`{name}`" in line]
        _, _, kind, labels, _, _ = (cell.strip() for cell in row.split("|"))
        assert kind == family.type
        shown = {label for each in family.samples for label in each.labels} - {"le"}
        assert set(labels.strip("`").split()) == shown, name
