"""What a row about a connection says of its packets: by what tshark says of the same captures."""

from __future__ import annotations

from typing import Any

from kwsniff.config import Config
from kwsniff.run.offline import events
from tests.samples import sample


def ends(name: str) -> list[dict[str, Any]]:
    rows = [
        row
        for batch in events(sample(name).paths, Config())
        for row in batch.to_pylist()
        if row["event"] == "connection"
    ]
    return sorted(rows, key=lambda row: row["first_packet"])


def test_tls_alerts_are_named_with_who_sent_them() -> None:
    """`tshark -Y tls.alert_message -d tcp.port==9094,tls`: 6 streams with level 2 and 48 from clients that
    don't know the CA, others with 80 from the broker."""
    alerts = [(row["tls_alert"], row["tls_alert_by"]) for row in ends("tls") if row["tls_alert"]]
    assert {alert for alert in alerts if alert[1] == "client"} == {("fatal unknown_ca (48)", "client")}
    assert {alert for alert in alerts if alert[1] == "broker"} == {("fatal internal_error (80)", "broker")}
    assert alerts.count(("fatal unknown_ca (48)", "client")) == 6
    plain = [row for row in ends("tls") if row["security"] == "plaintext"]
    assert plain
    assert all(row["tls_alert_by"] == "broker" and row["client_id"] for row in plain)


def test_a_reader_that_closes_its_window_is_counted_each_time() -> None:
    """`tshark -Y tcp.window_size_value==0`: eight packets in pairs, all from port 33358."""
    rows = [row for row in ends("slow-reader") if row["client_zero_windows"] or row["broker_zero_windows"]]
    assert [(row["client_port"], row["client_zero_windows"], row["broker_zero_windows"]) for row in rows] == [
        (33358, 4, 0)
    ]


def test_a_row_knows_its_first_and_last_packet() -> None:
    """Every packet in which tshark sees a message of a connection lies between them, and connections that
    follow one another on a port don't overlap."""
    rows = ends("connection-churn")
    seen = 0
    for packet in sample("connection-churn").tshark():
        ports, number = {packet["tcp.srcport"], packet["tcp.dstport"]}, int(packet["frame.number"])
        mine = [row for row in rows if str(row["client_port"]) in ports]
        assert any(row["first_packet"] < number <= row["last_packet"] for row in mine)
        seen += 1
    assert seen > 100
    assert min(row["first_packet"] for row in rows) == 1
    assert max(row["last_packet"] for row in rows) == sample("connection-churn").note["packets"]
