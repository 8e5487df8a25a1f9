"""Rows of connections that are over and of anomalies as columns of EVENTS; and of all rows, whose they are
and their order."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kwsniff.engine import tables as k
from kwsniff.engine.drained import Drained, Rows, distinct
from kwsniff.engine.notes import BAD_BODY, CODES
from kwsniff.net.address import text
from kwsniff.rows.arrays import Columns, column, durations, flags, not_negative, places, spread, timestamps
from kwsniff.rows.schema import EVENTS

Ints = NDArray[np.int64]


_END_NUMBERS = {
    "client_packets": "client_packets", "broker_packets": "broker_packets", "client_bytes": "client_bytes",
    "broker_bytes": "broker_bytes", "client_missing_bytes": "client_missing",
    "broker_missing_bytes": "broker_missing", "resynchronisations": "resynchronised",
    "client_retransmissions": "client_again", "broker_retransmissions": "broker_again",
    "client_zero_windows": "client_zero_windows", "broker_zero_windows": "broker_zero_windows",
    "duplicates": "copies",
    "skipped_bytes": "skipped", "frames": "frames", "undecoded_frames": "undecoded",
}  # fmt: skip


CLOSERS = pa.array([None if at not in (5, 6, 9, 10) else
                    f"{'client' if at & 1 else 'broker'}_{'rst' if at & 4 else 'fin'}" for at in range(16)],
                   pa.string())  # fmt: skip


ALERTED = pa.array([None, "client", "broker"], pa.string())
LEVELS = {1: "warning", 2: "fatal"}
ALERTS = {
    0: "close_notify", 10: "unexpected_message", 20: "bad_record_mac", 22: "record_overflow",
    40: "handshake_failure", 42: "bad_certificate", 43: "unsupported_certificate",
    44: "certificate_revoked", 45: "certificate_expired", 46: "certificate_unknown",
    47: "illegal_parameter", 48: "unknown_ca", 49: "access_denied", 50: "decode_error",
    51: "decrypt_error", 70: "protocol_version", 71: "insufficient_security", 80: "internal_error",
    86: "inappropriate_fallback", 90: "user_canceled", 109: "missing_extension",
    110: "unsupported_extension", 112: "unrecognized_name", 113: "bad_certificate_status_response",
    115: "unknown_psk_identity", 116: "certificate_required", 120: "no_application_protocol",
}  # fmt: skip
"""Descriptions of TLS alerts (RFC 8446, 6 and B.2)."""


def _alert(code: int) -> str | None:
    """A TLS alert as the kernel keeps it, in words."""
    if code < 0:
        return None
    level, description = divmod(code, 256)
    return f"{LEVELS[level]} {ALERTS.get(description, 'unknown')} ({description})"


def end_columns(drained: Drained, rows: Arranged) -> Columns:
    """The columns that only connections have."""
    ends = drained.ends
    if not len(ends):
        return {}
    columns = {name: column(ends[field], pa.int64()) for name, field in _END_NUMBERS.items()}
    columns |= {name: timestamps(ends[name]) for name in ("first_time", "last_time")}
    columns |= {name: flags(ends[name] != 0) for name in ("syn", "fin", "rst")}
    columns["handshake_us"] = durations(ends["handshake"], ends["handshake"] < 0)
    columns["sasl_mechanism"] = drained.texts.chosen(ends["mechanism"])
    for name in ("first_packet", "last_packet"):
        columns[name] = not_negative(ends[name], pa.int64())
    columns["tls_alert"] = pa.array([_alert(code) for code in ends["alert"].tolist()], pa.string())
    if drained.tls_over or (ends["hello"] >= 0).any():
        columns |= tls_columns(drained)
    columns["tls_alert_by"] = ALERTED.take(places(np.where(ends["alert"] < 0, 0, ends["alert_side"] + 1)))
    return {name: spread(values, rows.ends, len(rows)) for name, values in columns.items()}


_TLS = {
    "decrypted": "decrypted", "tls_version": "version", "tls_cipher": "cipher", "tls_group": "group",
    "tls_sni": "sni", "tls_sni_matches": "sni_matches", "tls_alpn": "alpn", "tls_resumed": "resumed",
    "tls_subject": "subject", "tls_client_certificate": "client_certificate",
    "tls_client_subject": "client_subject", "tls_history": "history", "tls_ja4": "ja4",
}  # fmt: skip
_TLS_TIMES = {
    "tls_client_hello_us": ("first_time", "hello_time"),
    "tls_server_hello_us": ("hello_time", "agreed_time"),
    "tls_first_request_us": ("agreed_time", "data_time"),
}


def tls_columns(drained: Drained) -> Columns:
    """What TLS handshakes said of connections that are over."""
    from kwsniff.tls.observed import failure, observed, software  # which loads what knows TLS

    ends = drained.ends
    facts = [drained.tls_over.get(number) for number in ends["number"].tolist()]
    for at in np.flatnonzero(ends["hello"] >= 0).tolist():
        facts[at] = facts[at] or observed(drained.texts.octets(int(ends["hello"][at])))
    columns = {}
    for name, field in _TLS.items():
        values = [None if each is None else getattr(each, field) for each in facts]
        columns[name] = pa.array(
            [None if value == "" else value for value in values], EVENTS.field(name).type
        )
    for name, field in (("tls_valid_from", "not_before"), ("tls_expires", "not_after")):
        seconds = pa.array([None if each is None else getattr(each, field) for each in facts], pa.int64())
        columns[name] = pc.multiply(seconds, 1_000_000).cast(EVENTS.field(name).type)
    columns["tls_failed"] = pa.array(
        [each and failure(each, row) for each, row in zip(facts, ends, strict=True)], pa.string()
    )
    columns["tls_software"] = pa.array([each and software(each.ja4) for each in facts], pa.string())
    for name, (begin, end) in _TLS_TIMES.items():
        known = (ends[begin] >= 0) & (ends[end] >= 0) & (ends["syn"] != 0)
        columns[name] = durations(ends[end] - ends[begin], ~known)
    for name in ("exchanges", "doubtful"):
        counted = np.where(ends["state"] == k.TLS, ends[name], -1)
        columns[f"tls_{name}"] = not_negative(counted, pa.int64())
    return columns


def closers(codes: Ints) -> pa.Array:
    """Who closed connections, by `closed_by`."""
    return CLOSERS.take(places(codes))


# Columns of anomalies: of packets that belong to no connection, of connections, and of bodies that were to
# be shown.

_CODES = pa.array(CODES, pa.string())


def anomaly_columns(drained: Drained, rows: Arranged) -> Columns:
    """The columns that only anomalies have."""
    if not len(rows.anomalies):
        return {}
    packet_notes, problems = drained.packet_notes, drained.problems
    packets = [
        np.array([each[3] for each in packet_notes], np.int64),
        drained.notes["packet"],
        np.array([int(row["packet"]) for row, _, _ in problems], np.int64),
    ]
    codes = [
        pa.array([each[1] for each in packet_notes], pa.string()),
        _codes(drained.notes["code"]),
        pa.array([code for _, code, _ in problems], pa.string()),
    ]
    details = [
        *(each[2] for each in packet_notes), *drained.details, *(detail for _, _, detail in problems),
    ]  # fmt: skip
    columns = {
        "code": pa.concat_arrays(codes),
        "detail": pa.array(details, pa.string()),
        "packet": not_negative(np.concatenate(packets), pa.int64()),
    }
    return {name: spread(values, rows.anomalies, len(rows)) for name, values in columns.items()}


def _codes(codes: Ints) -> pa.Array:
    return _CODES.take(places(np.where(codes >= BAD_BODY, codes - BAD_BODY, codes)))


# Whose rows are: ids and ends of connections as columns of EVENTS.
#
# Theory of operation. All is made for the connections of a batch, column by column, and then taken for its
# rows. An id, which takes a hash, is made once and kept at the place of the connection in the table, with the
# number that says whether the place belongs to the same one still: there are as many as connections are
# followed at a time. An address is worded once for each batch.

_HEX = np.frombuffer(b"".join(b"%02x" % byte for byte in range(256)), np.uint16)
"""Two digits of each byte."""


class Owners:
    """Makes columns of the connections that rows belong to."""

    def __init__(self) -> None:
        self._numbers = np.zeros(0, np.int64)
        """Whose id was kept at each place of the table of connections, 0: nobody's."""
        self._ids = np.zeros((0, SIZE), np.uint8)

    def columns(self, owners: Rows, whose: Ints) -> Columns:
        """Id and ends. `whose` says which of the owners each row belongs to; the number of these: to none."""
        nobody = whose == len(owners)
        taken = places(np.where(nobody, 0, whose), nobody)
        made = {"connection": self._connections(owners)} | _addresses(owners) | _ports(owners)
        return {name: values.take(taken) for name, values in made.items()}

    def _connections(self, owners: Rows) -> pa.Array:
        offsets = np.arange(0, 2 * SIZE * (len(owners) + 1), 2 * SIZE, dtype=np.int32)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(_HEX[self._ids_of(owners)])]
        return pa.Array.from_buffers(pa.string(), len(owners), buffers)

    def _ids_of(self, owners: Rows) -> NDArray[np.uint8]:
        at = owners["conn"]
        self._have_room(int(at.max(initial=-1)) + 1)
        ids = self._ids[at]
        new = np.flatnonzero(self._numbers[at] != owners["number"])
        if len(new):
            ids[new] = connection_ids(owners[new])
            self._ids[at[new]], self._numbers[at[new]] = ids[new], owners["number"][new]
        return ids

    def _have_room(self, count: int) -> None:
        lacking = count - len(self._numbers)
        if lacking > 0:
            lacking = max(lacking, len(self._numbers))
            self._numbers = np.pad(self._numbers, (0, lacking))
            self._ids = np.pad(self._ids, ((0, lacking), (0, 0)))


def _addresses(owners: Rows) -> Columns:
    halves = [np.concatenate([owners["a" + half], owners["b" + half]]) for half in ("_lo", "_hi")]
    first, which = distinct(halves)
    low, high = (half[first].tolist() for half in halves)
    texts = pa.array([text(*each) for each in zip(high, low, strict=True)], pa.string())
    a, b = which[: len(owners)], which[len(owners) :]
    return {f"{name}_ip": texts.take(places(end)) for name, end in _by_role(owners, a, b)}


def _ports(owners: Rows) -> Columns:
    ends = _by_role(owners, owners["a_port"], owners["b_port"])
    return {f"{name}_port": column(end, EVENTS.field(f"{name}_port").type) for name, end in ends}


def _by_role(owners: Rows, a: Ints, b: Ints) -> tuple[tuple[str, Ints], tuple[str, Ints]]:
    """What is known of both ends as what is known of client and broker."""
    turned = owners["client"] == 1
    return ("client", np.where(turned, b, a)), ("broker", np.where(turned, a, b))


# What was drained, in the order of events: where each row stands, and what rows of all kinds have.

KINDS = 4
"""Anomalies of packets before it, then its calls, anomalies, connections: the order of events of a packet."""
CALLS, ANOMALIES, ENDS = range(3)
"""Kinds of rows."""


@dataclass(frozen=True, slots=True)
class Arranged:
    """The rows of a batch."""

    keys: Ints
    """Places in the input (see `KINDS`), ascending."""
    ranks: Ints
    """Places among those of the same key."""
    numbers: Ints
    """Numbers of connections, 0 for none."""
    kind: Ints
    """CALLS, ANOMALIES or ENDS."""
    time: Ints
    """Nanoseconds, -1 if unknown."""
    owner: Ints
    """Which of the owners of what was drained each belongs to; the number of these: to none."""
    capture: Ints
    """Number of the capture file."""
    calls: Ints | None
    """Where the calls stand; None if there is nothing else."""
    anomalies: Ints
    """Where anomalies stand: of packets, of connections, of bodies, one after the other."""
    ends: Ints
    """Where connections stand."""

    def __len__(self) -> int:
        return len(self.keys)


def arranged(drained: Drained, bodies: np.dtype[Any]) -> Arranged:
    """Bring what was drained into its order. `bodies` is the record type of what problems are about."""
    packets = np.array([(each[0], *each[4:]) for each in drained.packet_notes], np.int64).reshape(-1, 3)
    problems = np.array([each[0] for each in drained.problems], bodies)
    nobody = len(drained.owners)
    calls, notes, ends = drained.calls, drained.notes, drained.ends
    whose = np.split(drained.whose, np.cumsum([len(calls), len(notes), len(problems)]))
    none = np.zeros(len(packets), np.int64)
    parts = (calls, None, notes, problems, ends)
    counts = [len(packets) if rows is None else len(rows) for rows in parts]

    def each(field: str, of_packets: Ints) -> Ints:
        return np.concatenate([of_packets if rows is None else rows[field] for rows in parts])

    keys = each("order", packets[:, 0]) * KINDS + np.repeat([1, 0, 2, 2, 3], counts)
    ranks, numbers = each("rank", none + k.OWN), each("number", none)
    owner = np.concatenate([whose[0], none + nobody, *whose[1:]])
    times = [
        np.where(calls["first_time"] >= 0, calls["first_time"], calls["response_first"]),
        packets[:, 1], notes["time"], problems["time"], ends["first_time"],
    ]  # fmt: skip
    captures = drained.owners["capture"]
    capture = [calls["capture"], packets[:, 2], captures[whose[1]], captures[whose[2]], ends["capture"]]
    kind = np.repeat([CALLS, ANOMALIES, ANOMALIES, ANOMALIES, ENDS], counts)
    own = bool((ranks >= k.OWN).all())
    columns = (keys, ranks, numbers, kind, np.concatenate(times), owner, np.concatenate(capture))
    if len(calls) == len(keys) and own and not _of_several(keys, numbers):
        nowhere = np.zeros(0, np.int64)
        return Arranged(*columns, calls=None, anomalies=nowhere, ends=nowhere)
    order = np.argsort(keys, kind="stable")
    if not own or _of_several(keys[order], numbers[order]):
        # Of connections that came to their places at the same time, the older one is first.
        order = np.lexsort((numbers, ranks, keys))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    calls_at, anomalies, ends_at = np.split(place, [counts[0], len(order) - counts[-1]])
    columns = tuple(each[order] for each in columns)
    return Arranged(*columns, calls=calls_at, anomalies=anomalies, ends=ends_at)


def _of_several(keys: Ints, numbers: Ints) -> bool:
    """Whether at one of these places, which ascend, there are rows of several connections: where a limit over
    all of them was reached."""
    return bool(((keys[1:] == keys[:-1]) & (numbers[1:] != numbers[:-1])).any())


# The stable id of a connection: both ends and the time of the first packet, hashed.

_MIX = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9)
_ENDS = ("a_hi", "a_lo", "a_port", "b_hi", "b_lo", "b_port")
_SAID = f"Endpoints({', '.join(f'{name}=%d' for name in _ENDS)}) %d\n".encode()
"""What is hashed, without the end of the line: worded together, for one by one takes longer than hashing."""
SIZE = 8
"""Bytes of an id, which is told in hexadecimal."""

End = tuple[int, int, int]
"""Upper and lower half of an address, and a port."""
_RECORD = np.dtype([(name, np.int64) for name in (*_ENDS, "first_time")])


def connection_id(a: End, b: End, first_time: int) -> str:
    """The id, whichever end is given first; `first_time` is nanoseconds since 1970."""
    return connection_ids(np.array([(*a, *b, first_time)], _RECORD)).tobytes().hex()


def connection_ids(rows: Rows) -> NDArray[np.uint8]:
    """The ids of connections, SIZE bytes in a row each, of their ends (`a_hi` to `b_port`) and `first_time`:
    column by column, for a capture may have a hundred thousand of them."""
    a, b = ([rows[f"{end}_{part}"] for part in ("hi", "lo", "port")] for end in "ab")
    turned = end_weight(*a) > end_weight(*b)
    ends = [np.where(turned, second, first) for first, second in zip(a + b, b + a, strict=True)]
    words = np.stack([*ends, rows["first_time"]], axis=1)
    said = (_SAID * len(rows) % tuple(words.ravel().tolist())).splitlines()
    hashed = b"".join([blake2b(each, digest_size=SIZE).digest() for each in said])
    return np.frombuffer(hashed, np.uint8).reshape(-1, SIZE)


def end_weight(hi: Rows, lo: Rows, port: Rows) -> NDArray[np.uint64]:
    """What puts the ends in an order that has nothing to do with who is the client. Products wrap."""
    x, y, z = (np.uint64(each) for each in _MIX)
    hi, lo, port = (np.ascontiguousarray(each).view(np.uint64) for each in (hi, lo, port))
    mixed = (hi * x) ^ ((lo + port * z) * y)
    made: NDArray[np.uint64] = mixed ^ (mixed >> np.uint64(29))
    return made
