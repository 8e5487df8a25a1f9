"""How far the capture can be trusted: a verdict with its reasons, and one paragraph on what was seen, what is
missing and what was not understood. The totals are summed while the events pass by."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from kwsniff.net.packets import CaptureTotals
from kwsniff.output.units import bytes_text, digits, many
from kwsniff.rows.events import ANOMALIES

DAMAGE = ("capture_unreadable", "capture_cut_short", "capture_damaged", "packet_malformed")
"""Anomalies that mean: part of the input could not be read."""

LIMITS = tuple(code for code in ANOMALIES if code.endswith("_limit") or code == "frame_too_large")
"""Anomalies that mean: a limit of kwsniff was reached, and something was given up."""

TWICE = 0.01
"""Packets captured twice are told from this part on: single ones are a sender's doing."""

HIGH, LIMITED, LOW = "high", "limited", "low"
REASONS = 2
"""Said beside the verdict."""
LOST = ("gap_in_responses", "limit")
"""Why there is no response although there may have been one."""
NEVER = 2.0

_ZERO, _TLS = pa.scalar(0, pa.int64()), pa.scalar("tls", pa.string())
_ESTIMATED = pa.scalar("estimated", pa.string())
_SUMMED = (
    *("client_packets", "broker_packets", "client_bytes", "broker_bytes"),
    *("client_missing_bytes", "broker_missing_bytes"),
    *("resynchronisations", "skipped_bytes", "frames", "undecoded_frames", "tls_exchanges", "tls_doubtful"),
)

_LOOKED_AT = ("syn", "fin", "rst", "security", *_SUMMED)
"""Columns of connections."""


@dataclass
class TrustTotals:
    """Totals of EVENTS: `add` every batch."""

    statuses: dict[str, int] = field(default_factory=dict)
    """Calls by status."""
    paired: int = 0
    """Calls of which request and response were seen."""
    lost: int = 0
    """Unanswered calls whose response may be one that was not captured, or was given up."""
    anomalies: dict[str, int] = field(default_factory=dict)
    """Anomalies by code."""
    connections: int = 0
    complete: int = 0
    """Connections of which the SYN and a FIN or RST were seen."""
    half_seen: int = 0
    """Connections with payload in one direction only."""
    mid_stream: int = 0
    """Connections whose SYN was not seen."""
    tls: int = 0
    """Connections that were encrypted and skipped."""
    sums: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_SUMMED, 0))
    """Sums of the numeric columns of connection rows."""

    def add(self, batch: pa.RecordBatch) -> None:
        """Count the events of one batch."""
        # Calls have a status and anomalies a code, which is quicker to see than the text of `event`.
        self._add_calls(batch)
        _count(self.anomalies, batch["code"].drop_null())
        others = pc.and_(batch["status"].is_null(), batch["code"].is_null())
        if others.true_count:
            self._add_connections(batch.select(_LOOKED_AT).filter(others))

    def merge(self, other: TrustTotals) -> None:
        """Take what another one counted."""
        for name, further in vars(other).items():
            own = getattr(self, name)
            if isinstance(own, int):
                setattr(self, name, own + further)
                continue
            for each, count in further.items():
                own[each] = own.get(each, 0) + count

    @property
    def calls(self) -> int:
        return sum(self.statuses.values()) - self.exchanges

    @property
    def exchanges(self) -> int:
        """What is estimated to be calls of TLS connections."""
        return self.statuses.get("estimated", 0)

    @property
    def damaged(self) -> bool:
        """Part of the input could not be read."""
        return any(self.anomalies.get(code) for code in DAMAGE)

    def _add_calls(self, calls: pa.RecordBatch) -> None:
        _count(self.statuses, calls["status"].drop_null())
        both = pc.and_(calls["request_time"].is_valid(), calls["response_time"].is_valid())
        self.paired += pc.and_(both, pc.not_equal(calls["status"], _ESTIMATED)).true_count
        if "unanswered_because" in calls.schema.names:
            because = pc.is_in(calls["unanswered_because"], pa.array(LOST, pa.string()))
            self.lost += because.true_count

    def _add_connections(self, rows: pa.RecordBatch) -> None:
        syn, fin, rst = (pc.fill_null(rows[name], False) for name in ("syn", "fin", "rst"))
        self.connections += rows.num_rows
        self.complete += pc.and_(syn, pc.or_(fin, rst)).true_count
        self.mid_stream += pc.invert(syn).true_count
        client, broker = (
            pc.greater(pc.fill_null(rows[name], 0), _ZERO) for name in ("client_bytes", "broker_bytes")
        )
        self.half_seen += pc.xor(client, broker).true_count
        self.tls += pc.fill_null(pc.equal(rows["security"], _TLS), False).true_count
        for name in _SUMMED:
            self.sums[name] += pc.sum(rows[name]).as_py() or 0


def paragraph(
    events: TrustTotals,
    capture: CaptureTotals | None = None,
    *,
    whole: bool = True,
    window: bool = False,
    instead: str = "",
) -> str:
    """The paragraph as one line of sentences; the caller wraps it. Without `capture` (events that come from
    elsewhere) packets and bytes are those of the Kafka connections. Without `whole` the run was left before
    the input's end, where connections tell of their gaps and frames. `window`: the events are of some time of
    the input only, of which frames and missing bytes were not counted. `instead`: what was
    found where there was no Kafka."""
    if whole and not events.connections and not events.calls:
        nothing = "No Kafka was found in the time asked for." if window else "No Kafka was found."
        told = [_packets(events, capture), nothing, instead, _limits(events), _damage(events, capture)]
        return " ".join(filter(None, told))
    cut = capture is not None and capture.payloads_cut > 0
    told = [_connections(events), _gaps(events, cut=cut), _frames(events)] if whole else []
    if window:
        gaps = events.anomalies.get("gap", 0)
        told = ["In the time asked for:", *told[:1], f"{many(gaps, 'gap')}." if gaps else "No gaps."]
    level, reasons = verdict(events, capture, whole=whole, window=window)
    sentences = [
        f"Trust: {level} ({'; '.join(reasons[:REASONS]) or 'nothing is missing'}).",
        _packets(events, capture),
        *told,
        _calls(events),
        _clocks(events),
        _limits(events),
        _damage(events, capture),
        "" if whole else "Stopped before the end, so nothing is known of connections and gaps.",
    ]
    return " ".join(sentence for sentence in sentences if sentence)


class Doubt(NamedTuple):
    """What part of a whole is not as it should be, and from which share on that limits trust, or leaves
    little of it."""

    part: int
    whole: int
    limited: float
    low: float
    words: str

    @property
    def share(self) -> float:
        return self.part / max(self.whole, 1)


def verdict(
    events: TrustTotals, capture: CaptureTotals | None = None, *, whole: bool = True, window: bool = False
) -> tuple[str, list[str]]:
    """`high`, `limited` or `low`, and why, the gravest reason first; docs/report.md has the rule. The
    arguments are those of `paragraph`."""
    doubts = [each for each in _doubts(events, capture, window) if each.part and each.share >= each.limited]
    doubts.sort(key=lambda each: -each.share / each.low)
    reasons = [f"{digits(100 * each.share)} % {each.words}" for each in doubts]
    if events.damaged:
        reasons.append("part of the input could not be read")
    if any(events.anomalies.get(code) for code in LIMITS):
        reasons.append("limits of kwsniff were reached")
    if not whole:
        reasons.append("stopped before the end")
    low = any(each.share >= each.low for each in doubts)
    return LOW if low else LIMITED if reasons else HIGH, reasons


def _doubts(events: TrustTotals, capture: CaptureTotals | None, window: bool) -> Iterator[Doubt]:
    sums, count = events.sums, events.connections
    missing = sums["client_missing_bytes"] + sums["broker_missing_bytes"] + sums["skipped_bytes"]
    if window:  # bytes and frames are those of whole connections
        yield Doubt(events.anomalies.get("gap", 0), events.calls, 0.001, 0.05, "as many gaps as calls")
    else:
        size = sums["client_bytes"] + sums["broker_bytes"] + missing
        yield Doubt(missing, size, 0.001, 0.05, "of the bytes are missing")
        yield Doubt(sums["undecoded_frames"], sums["frames"], 0.001, 0.05, "of the frames were not decoded")
    if capture is not None:
        dropped = capture.dropped + capture.own_dropped
        yield Doubt(dropped, capture.packets + dropped, 0.0001, 0.01, "of the packets were dropped")
    lost = events.lost + sum(events.statuses.get(each, 0) for each in ("orphan", "truncated", "undecoded"))
    yield Doubt(lost, events.calls, 0.01, 0.1, "of the calls lack their request, response or part of it")
    clocks, other = (events.anomalies.get(code, 0) for code in ("clocks_differ", "not_kafka"))
    yield Doubt(clocks, count, 0.01, 0.1, "of the connections have clocks that differ")
    yield Doubt(events.tls, count, 0.01, 0.5, "of the connections are encrypted (TLS)")
    yield Doubt(events.half_seen, count, 0.2, 0.5, "of the connections show one direction only")
    yield Doubt(other, count + other, 0.05, 0.5, "of the connections are not Kafka")
    yield Doubt(events.mid_stream, count, 0.1, NEVER, "of the connections were joined mid-stream")


def _packets(events: TrustTotals, capture: CaptureTotals | None) -> str:
    if capture is None:
        packets = events.sums["client_packets"] + events.sums["broker_packets"]
        size = events.sums["client_bytes"] + events.sums["broker_bytes"]
        return f"{many(packets, 'packet')} with {bytes_text(size)} of payload."
    text = f"{many(capture.packets, 'packet')}, {bytes_text(capture.bytes)}"
    text += f", from {many(capture.files, 'file')}" if capture.files else ""
    other = [(capture.non_ip, "not IP"), (capture.non_tcp, "not TCP"), (capture.fragments, "IP fragments")]
    other.append((capture.headers_cut, "cut inside their headers"))
    parts = [f"{count:,} {name}" for count, name in other if count]
    share = capture.duplicates / max(capture.segments, 1)
    if share >= TWICE:
        parts.append(f"{capture.duplicates:,} captured twice, {share:.1%} of TCP")
    return text + (f" ({', '.join(parts)})." if parts else ".")


def _connections(events: TrustTotals) -> str:
    text = many(events.connections, "connection")
    if events.connections:
        text += f": {events.complete:,} complete"
    for count, what in (
        (events.mid_stream, ", {:,} joined mid-stream"),
        (events.connections - events.complete - events.mid_stream, ", {:,} whose end was not seen"),
        (events.half_seen, "; {:,} with bytes in one direction only"),
        (events.tls, "; {:,} encrypted with TLS"),
        (events.anomalies.get("not_kafka"), "; {:,} judged not to be Kafka (decode --trace ID says why)"),
    ):
        text += what.format(count) if count else ""
    return f"{text}."


def _gaps(events: TrustTotals, *, cut: bool) -> str:
    """`cut`: packets were captured only in part."""
    missing = events.sums["client_missing_bytes"] + events.sums["broker_missing_bytes"]
    gaps, found = events.anomalies.get("gap", 0), events.sums["resynchronisations"]
    if not (missing or gaps or found):
        return "No gaps."
    text = f"{many(gaps, 'gap')}, " if gaps else "No gaps; "
    text += f"{bytes_text(missing)} missing"
    if missing and not gaps:  # then there is no other reason
        text += ", cut off by the snap length" if cut else " at the end of streams"
    if found:
        text += f", {many(found, 'resynchronisation')}"
    skipped = events.sums["skipped_bytes"]
    return text + (f", {bytes_text(skipped)} skipped." if skipped else ".")


def _clocks(events: TrustTotals) -> str:
    count = events.anomalies.get("clocks_differ", 0)
    on = f"on {many(count, 'connection')}"
    return f"The clocks of the two directions differ {on}: latencies there are wrong." if count else ""


def _limits(events: TrustTotals) -> str:
    reached = [f"{code} {events.anomalies[code]:,}" for code in LIMITS if events.anomalies.get(code)]
    return f"Limits of kwsniff that cost something: {', '.join(reached)}." if reached else ""


def _frames(events: TrustTotals) -> str:
    undecoded = events.sums["undecoded_frames"]
    return f"{events.sums['frames'] - undecoded:,} frames decoded, {undecoded:,} not."


def _calls(events: TrustTotals) -> str:
    text = f"{many(events.calls, 'call')}: {events.paired:,} paired"
    if events.exchanges:
        doubtful = events.sums["tls_doubtful"] / max(events.sums["tls_exchanges"], 1)
        doubt = f", {digits(100 * doubtful)} % of them doubtful" if doubtful else ""
        text = f"{many(events.exchanges, 'exchange')} of TLS connections, which are estimates{doubt}. {text}"
    for status in ("no_reply_expected", "unanswered", "orphan", "truncated"):
        if events.statuses.get(status):
            text += f", {events.statuses[status]:,} {status.replace('_', ' ')}"
    return text + "."


def _damage(events: TrustTotals, capture: CaptureTotals | None) -> str:
    odd = events.anomalies.get
    told = [
        (odd("capture_unreadable", 0), "file", " unreadable"),
        (odd("capture_cut_short", 0), "file", " cut short"),
        (odd("capture_damaged", 0), "damaged place", " passed over"),
        (capture.malformed if capture else odd("packet_malformed", 0), "malformed packet", ""),
    ]
    if capture:
        came = max(capture.packets + capture.dropped + capture.own_dropped, 1)
        for count, how in (
            (capture.dropped, "dropped by the capturing kernel"),
            (capture.own_dropped, "dropped by kwsniff, which did not keep up"),
        ):
            told.append((count, "packet", f" ({count / came:.1%}) {how}"))
    parts = [f"{many(count, noun)}{how}" for count, noun, how in told if count]
    return f"Damaged input: {', '.join(parts)}." if parts else ""


def _count(counts: dict[str, int], column: pa.Array) -> None:
    for row in pc.value_counts(column.drop_null()).to_pylist():
        counts[row["values"]] = counts.get(row["values"], 0) + row["counts"]
