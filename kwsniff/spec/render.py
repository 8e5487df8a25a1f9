"""Decoded bodies as JSON text, for the columns `request` and `response`.

Theory of operation. Most fields of a body are JSON already. From the model of a message a *plan* is made
once: which fields need more than that, and the way to them. Applying it copies only the structs on that way.
What the plan can put in place of a value:

* record data: a list of batches (see `_Rendering.records`), with config.records also their records;
* bytes of a known message (group members' metadata, principals): {"message", "version", "data"};
* a credential (role `secret`), and the value of a setting that is named like one: "***", always.

Any other bytes become {"bytes": size}, or with config.records {"base64": text}. Keys, values and header
values of records are text if they are printable UTF-8, else {"base64": text}, and null if null.

Invariants. Without config.records no byte of a payload is shown; one message takes at most `MESSAGE_BATCHES`
times the memory that a batch may take.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from crc32c import crc32c

from kwsniff.config import Config
from kwsniff.spec import embedded
from kwsniff.spec.batches import (
    BATCH_HEADER,
    CODEC_MASK,
    CODEC_NAMES,
    CONTROL_BIT,
    CRC_FROM,
    CREATE_TIME,
    DELETE_HORIZON_BIT,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MIN_RECORD,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    Batch,
    Record,
    batches,
    least_length,
    records,
    unpack_header,
)
from kwsniff.spec.binary import DecodeError
from kwsniff.spec.codecs import Allowance
from kwsniff.spec.embedded import Embedded
from kwsniff.spec.jsontext import encode, payload
from kwsniff.spec.load import catalog
from kwsniff.spec.model import Field

HIDDEN = "***"
ENVELOPE = 58
SENSITIVE_NAME = re.compile(
    r"passw|secret|jaas|credential|token|private|passphrase|(keystore|master|api|access|account)[._-]?key",
    re.I,
)
"""Names of settings whose values are not shown: those of brokers, clients and common plugins."""

MESSAGE_BATCHES = 2
PLAIN_BATCHES = 1000
"""Batches of one field that are shown, at the most, before it is counted what a message may still take."""
RECORD_COST, BATCH_COST = 256, 512
"""Bytes charged for a shown record, header or batch besides its payload: about what its object takes."""

Problem = tuple[str, str]
"""Anomaly code and detail."""

Action = Callable[["_Rendering", Any], Any]
Plan = dict[str, Action]


def render(
    api_key: int,
    api_version: int,
    direction: str,
    body: dict[str, Any],
    config: Config,
    problems: list[Problem] | None = None,
) -> str:
    """The JSON text of a decoded body, on one line, in UTF-8 without escapes but the necessary ones.

    Args:
        api_key: number of the API; its version has no influence, the body's fields say enough.
        direction: `request` or `response`.
        body: as from `decode_body`; it is not changed.
        config: `records` asks for payloads; its limits hold for decompression.
        problems: what goes wrong inside batches (not what their headers tell already) is added here, if
            given: anomaly code and detail.

    Raises:
        KeyError: an unknown API.
    """
    rendering = _Rendering(config, [] if problems is None else problems)
    plan = _message_plan(api_key, direction)
    if plan:
        body = rendering.apply(plan, body)
    return encode(body, config.records)


# Plans


@cache
def _message_plan(api_key: int, direction: str) -> Plan:
    return _plan(catalog().api(api_key).message(direction).fields)


@cache
def _data_plan(name: str) -> Plan:
    try:
        return _plan(catalog().data(name).fields)
    except KeyError:
        return {}


def _plan(fields: tuple[Field, ...]) -> Plan:
    setting = any(field.name == "name" and field.type == "string" for field in fields)
    plan: Plan = {}
    for field in fields:
        action = _action(field, setting)
        if action is not None:
            plan[field.name] = action
    return plan


def _action(field: Field, setting: bool) -> Action | None:
    if "secret" in field.roles or "auth_bytes" in field.roles:
        return _Rendering.forwarded if field.name == "request_data" else _hide
    if field.type == "records":
        return _Rendering.records
    if field.type == "struct":
        plan = _plan(field.fields)
        return _nested(plan, field.array) if plan else None
    if field.type == "string" and field.name == "value" and setting:
        return _Rendering.setting
    return _BYTES_ACTIONS.get(field.name) if field.type == "bytes" else None


def _nested(plan: Plan, array: bool) -> Action:
    if array:
        return lambda rendering, value: rendering.apply_all(plan, value)
    return lambda rendering, value: rendering.apply(plan, value)


def _hide(_: _Rendering, value: object) -> str:
    return HIDDEN


class _Rendering:
    """One body on its way to JSON."""

    __slots__ = ("config", "left", "path", "problems")

    def __init__(self, config: Config, problems: list[Problem]) -> None:
        self.config = config
        self.problems = problems
        self.left = MESSAGE_BATCHES * config.max_decompressed_bytes
        self.path: list[dict[str, Any]] = []

    def apply(self, plan: Plan, struct: dict[str, Any]) -> dict[str, Any]:
        """`struct`, or if it has any of them a copy with what the plan puts in place of its values."""
        return self.apply_all(plan, (struct,))[0]

    def apply_all(self, plan: Plan, structs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """As `apply`, for the elements of an array: on the way to record data there are many."""
        results = []
        path = self.path
        for struct in structs:
            changed = struct
            path.append(struct)
            for name, action in plan.items():
                value = struct.get(name)
                if value is not None:
                    if changed is struct:
                        changed = struct.copy()
                    # Most partitions of most fetches have nothing.
                    nothing = value == b"" and action is _Rendering.records and not struct.get("position")
                    changed[name] = [] if nothing else action(self, value)
            path.pop()
            results.append(changed)
        return results

    def enclosing(self, *names: str) -> Any:
        """The first of the named fields found in the structs around, from the inside out."""
        for struct in reversed(self.path):
            for name in names:
                if struct.get(name):
                    return struct[name]
        return None

    # Fields

    def setting(self, value: str) -> str:
        struct = self.path[-1]
        hidden = struct.get("is_sensitive") or SENSITIVE_NAME.search(struct.get("name") or "")
        return HIDDEN if hidden else value

    def metadata(self, value: bytes) -> object:
        return self._embedded(embedded.member_metadata(self._protocol_type(), value), value)

    def assignment(self, value: bytes) -> object:
        return self._embedded(embedded.member_assignment(self._protocol_type(), value), value)

    def principal(self, value: bytes) -> object:
        return self._embedded(embedded.principal(value), value)

    def forwarded(self, value: bytes) -> object:
        """The request in an Envelope, with its own secrets hidden."""
        found = embedded.forwarded(value)
        if found is None or found.api_key == ENVELOPE:
            return HIDDEN
        body = self.apply(_message_plan(found.api_key, "request"), found.body)
        return {**found._asdict(), "api": catalog().api(found.api_key).name, "body": body}

    def user_data(self, value: bytes) -> object:
        if self.enclosing("protocol_name", "protocol_data", "protocol", "name") != "stream":
            return value
        return self._embedded(embedded.streams_user_data(value), value)

    def _protocol_type(self) -> str | None:
        found = self.enclosing("protocol_type")
        return found if isinstance(found, str) else None

    def _embedded(self, found: Embedded | None, value: bytes) -> object:
        """The message found, or the bytes as they are."""
        if found is None:
            return value
        plan = _data_plan(found.message)
        data = self.apply(plan, found.data) if plan else found.data
        return {"message": found.message, "version": found.version, "data": data}

    # Record data

    def records(self, value: bytes) -> object:
        """Batches of record data; a slice from the middle of a snapshot is no record data yet (KIP-630)."""
        if self.path[-1].get("position"):
            return {"bytes": len(value)}
        shown: list[dict[str, Any]] = []
        start = 0
        if not self.config.records and self.left > PLAIN_BATCHES * BATCH_COST:
            shown, start = _plain_headers(value, self.config.verify_crc)
            self.left -= BATCH_COST * len(shown)
        for batch in batches(value, start, len(value), self.config):
            self.left -= BATCH_COST
            if self.left <= 0:
                self._problem("decompressed_size_limit", batch.base_offset)
                break
            shown.append(self._batch(value, batch))
        return shown

    def _batch(self, buf: bytes, batch: Batch) -> dict[str, Any]:
        shown = _batch_header(batch)
        if batch.partial or batch.problem is not None:
            return shown
        if self.config.records or batch.control:
            self._records_into(shown, buf, batch)
        elif batch.record_count is None:
            self._walk(shown, buf, batch, lambda record: None)
        return shown

    def _records_into(self, shown: dict[str, Any], buf: bytes, batch: Batch) -> None:
        inside = shown["records"] = []
        topic = self.enclosing("topic", "name", "topic_id")
        show = self._control if batch.control else self._record
        self._walk(shown, buf, batch, lambda record: inside.append(show(record, topic)))

    def _walk(self, shown: dict[str, Any], buf: bytes, batch: Batch, visit: Callable[[Record], None]) -> None:
        """Visit the records of a batch, and put right what only its inside tells about it."""
        limit = min(self.left, self.config.max_decompressed_bytes)
        allowance = Allowance(limit, self.config.max_decompression_ratio)
        first, count, wrong = None, 0, 0
        try:
            for record in records(buf, batch, self.config, allowance):
                self.left -= RECORD_COST * (1 + len(record.headers))
                if self.left <= limit - allowance.left:
                    raise DecodeError("decompressed_size_limit")
                visit(record)
                first = record.offset if first is None else first
                count += 1
                wrong += record.crc_ok is False
        except DecodeError as error:
            shown["problem"] = error.code
            self._problem(error.code, batch.base_offset)
        else:
            if batch.record_count is None:
                shown["count"], shown["base_offset"] = count, first
        self.left -= limit - allowance.left
        if wrong and batch.codec:
            shown["crc_mismatches"] = wrong
            self._problem("crc_mismatch", batch.base_offset)

    def _problem(self, code: str, offset: int | None) -> None:
        topic = self.enclosing("topic", "name", "topic_id")
        where = "" if offset is None else f" at offset {offset}"
        self.problems.append((code, f"record batch of {topic}{where}"))

    def _record(self, record: Record, topic: str | None) -> dict[str, Any]:
        key: object = payload(record.key)
        value: object = payload(record.value)
        if topic in embedded.METADATA_TOPICS or topic in embedded.KEYED_TOPICS:
            found_key, found_value = embedded.topic_record(topic, record.key, record.value)
            key = key if found_key is None else self._embedded(found_key, b"")
            if found_value is not None:
                value = self._embedded(found_value, b"")
            elif topic in embedded.METADATA_TOPICS and record.value is not None:
                # Of a version or type not known here, and so perhaps a credential.
                value = {"bytes": len(record.value)}
        headers = [{"key": name, "value": payload(data)} for name, data in record.headers]
        return {
            "offset": record.offset,
            "timestamp": record.timestamp,
            "key": key,
            "value": value,
            "headers": headers,
        }

    def _control(self, record: Record, topic: str | None) -> dict[str, Any]:
        """Control records hold no payload: they are shown even if records are not."""
        kind, found = embedded.control_record(record.key, record.value) or ("unknown", None)
        shown: dict[str, Any] = {"offset": record.offset, "timestamp": record.timestamp, "control": kind}
        if found is not None:
            shown["value"] = self._embedded(found, b"")
        return shown


_BYTES_ACTIONS: dict[str, Action] = {
    "metadata": _Rendering.metadata,
    "member_metadata": _Rendering.metadata,
    "subscription": _Rendering.metadata,
    "assignment": _Rendering.assignment,
    "member_assignment": _Rendering.assignment,
    "request_principal": _Rendering.principal,
    "user_data": _Rendering.user_data,
}


def _plain_headers(data: bytes, verify_crc: bool) -> tuple[list[dict[str, Any]], int]:
    """What `_batch_header` shows of the first batches, and where they end: as long as they are whole, of
    magic 2, with a codec and a count that may be, and such as producers send. Nearly all are, and this takes
    a third of the time."""
    shown: list[dict[str, Any]] = []
    start, end = 0, len(data)
    while end - start >= BATCH_HEADER and len(shown) < PLAIN_BATCHES:
        (
            base_offset, length, leader_epoch, magic, crc, attributes, last_delta, base_time, max_time,
            producer_id, producer_epoch, base_sequence, count,
        ) = unpack_header(data, start)  # fmt: skip
        stop = start + LOG_OVERHEAD + length
        codec = attributes & CODEC_MASK
        odd = magic != 2 or attributes & (CONTROL_BIT | DELETE_HORIZON_BIT) or length < least_length(2)
        if odd or stop > end or codec > 4 or count < 0:
            break
        if codec == 0 and count * MIN_RECORD > stop - start - BATCH_HEADER:
            break
        shown.append(
            {
                "base_offset": base_offset,
                "magic": 2,
                "size": stop - start,
                "last_offset": base_offset + last_delta,
                "codec": CODEC_NAMES[codec],
                "count": count,
                "crc_ok": crc32c(data[start + CRC_FROM : stop]) == crc if verify_crc else None,
                "timestamp_type": LOG_APPEND_TIME if attributes & TIMESTAMP_TYPE_BIT else CREATE_TIME,
                "base_timestamp": base_time,
                "max_timestamp": max_time,
                "leader_epoch": leader_epoch,
                "producer_id": producer_id,
                "producer_epoch": producer_epoch,
                "base_sequence": base_sequence,
                "transactional": bool(attributes & TRANSACTIONAL_BIT),
                "control": False,
            }
        )
        start = stop
    return shown, start


def _batch_header(batch: Batch) -> dict[str, Any]:
    shown: dict[str, Any] = {"base_offset": batch.base_offset, "magic": batch.magic, "size": batch.size}
    if batch.partial or batch.problem == "batch_malformed":
        return shown | ({"partial": True} if batch.partial else {"problem": batch.problem})
    shown["last_offset"] = batch.last_offset
    shown["codec"] = batch.codec_name
    shown["count"] = batch.record_count
    shown["crc_ok"] = batch.crc_ok
    if batch.magic:
        shown["timestamp_type"] = batch.timestamp_type
        shown["base_timestamp"] = batch.base_timestamp
        shown["max_timestamp"] = batch.max_timestamp
    if batch.magic == 2:
        shown["leader_epoch"] = batch.leader_epoch
        shown["producer_id"] = batch.producer_id
        shown["producer_epoch"] = batch.producer_epoch
        shown["base_sequence"] = batch.base_sequence
        shown["transactional"] = batch.transactional
        shown["control"] = batch.control
        if batch.delete_horizon:
            shown["delete_horizon"] = True
    if batch.problem is not None:
        shown["problem"] = batch.problem
    return shown
