"""Who created, changed and deleted what, with what result.

Administrative calls name their resources in their bodies, so a call of several topics is a line for each.
Where EVENTS has no bodies its list of resources is used, and where that is empty too the call is told as a
whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from kwsniff.analysis.tabular import AnswerField, AnswerTable, Row, calls_of, columns, ends_of
from kwsniff.count.eventrows import address
from kwsniff.spec.load import catalog

NEEDS = columns(
    """
    event time connection client_ip client_id broker_ip broker_port api api_key api_version status
    error_code error topics topic_ids resources user request response request_packet group_id
    unanswered_because
    """
)
MAX_ROWS = 200_000
ENVELOPE = 58
"""Carries a client's request from a broker to the controller (KIP-590)."""
SENT_ON = "sent on to the controller"


class Audit:
    """Takes EVENTS and gives what was changed."""

    def __init__(self) -> None:
        self.needs = NEEDS
        self._rows: list[dict[str, Any]] = []
        self._users: dict[str, str] = {}
        self._closed = self._beyond = 0

    def take(self, batch: pa.RecordBatch) -> None:
        calls = calls_of(batch)
        changing = pc.fill_null(pc.is_in(calls["api_key"], pa.array([*ACTIONS, ENVELOPE], pa.int32())), False)
        for row in calls.filter(changing).select(sorted(NEEDS)).to_pylist():
            if len(self._rows) >= MAX_ROWS:
                self._beyond += 1
                continue
            self._rows += self._lines(row)
        for row in ends_of(batch).select(["connection", "user"]).to_pylist():
            if row["user"] is not None and len(self._users) < MAX_ROWS:
                self._users[row["connection"]] = row["user"]

    def _lines(self, row: Row) -> Iterator[dict[str, Any]]:
        if row["api_key"] == ENVELOPE:
            inner = _forwarded(row)
            if inner is None:
                return
            row = inner
        common = {
            "time": row["time"], "client": row["client_id"], "address": row["client_ip"],
            "user": row["user"], "connection": row["connection"], "api": row["api"],
            "action": ACTIONS[row["api_key"]].verb, "packet": row["request_packet"],
            "broker": address(row["broker_ip"], row["broker_port"]),
        }  # fmt: skip
        for change, code, dry in self._changes(row):
            yield {
                **common, "type": change.type, "name": change.name, "detail": change.detail or None,
                "what": " ".join(filter(None, (change.type, change.name))), "result": _result(row, code),
                "validate_only": dry,
            }  # fmt: skip

    def _changes(self, row: Row) -> Iterator[tuple[Change, int | None, bool | None]]:
        if row["request"] is not None:
            request = orjson.loads(row["request"])
            response = orjson.loads(row["response"]) if row["response"] is not None else {}
            names = dict(zip(row["topic_ids"] or (), row["topics"] or (), strict=False))
            for change, code in changes_of(row["api_key"], request, response):
                named = change._replace(name=names.get(change.name) or change.name)
                yield named, code if row["response"] is not None else None, request.get("validate_only")
            return
        self._closed += 1
        if row["resources"]:
            for each in row["resources"]:
                yield Change(each["type"], each["name"], each["detail"] or ""), each["error_code"], None
            return
        for name in row["topics"] or [row["group_id"]]:
            yield Change("topic" if row["topics"] else "", name), row["error_code"], None

    def tables(self) -> list[AnswerTable]:
        """Every change in the order of time."""
        rows: list[Row] = [
            {**row, "user": row["user"] or self._users.get(row["connection"])} for row in self._rows
        ]
        rows.sort(key=lambda row: row["time"])
        return [AnswerTable("changes", "Changes", CHANGES, rows, top=50)]

    def notes(self) -> list[str]:
        found = []
        if self._closed:
            found.append(f"{self._closed:,} calls have no bodies: read the capture to see what they changed")
        if self._beyond:
            found.append(f"{self._beyond:,} calls beyond the first {MAX_ROWS:,} changes are not told")
        return found


def _forwarded(row: Row) -> dict[str, Any] | None:
    """The call that a broker sends on to the controller for a client, None if it changes nothing. What came
    of it is in bytes that are not shown; only whether the controller took it is known."""
    request = orjson.loads(row["request"]) if row["request"] is not None else {}
    inner = request.get("request_data")
    if not isinstance(inner, dict) or inner["api_key"] not in ACTIONS:
        return None
    principal = request.get("request_principal")
    known = principal.get("data", {}) if isinstance(principal, dict) else {}
    refused = row["error_code"] or row["status"] not in ("ok", "error")
    return {
        **row, "api_key": inner["api_key"], "api": inner["api"], "api_version": inner["api_version"],
        "client_id": inner["client_id"], "user": known.get("name"), "request": orjson.dumps(inner["body"]),
        "response": row["response"] if refused else None, "status": row["status"] if refused else SENT_ON,
    }  # fmt: skip


def _result(row: Row, code: int | None) -> str:
    if row["status"] not in ("ok", "error"):
        return str(row["unanswered_because"] or row["status"])
    if code is None:
        code = row["error_code"] or 0
    return "ok" if code == 0 else catalog().error(code).name


CHANGES = (
    AnswerField("time", "time", "time", "packet time of the request"),
    AnswerField("user", "text", "user", "SASL user, where the mechanism shows it", 3),
    AnswerField("client", "text", "client", "client id", 4),
    AnswerField("address", "text", "address", "its address", 6),
    AnswerField("action", "text", "action", "what was asked"),
    AnswerField("what", "text", "of what", "kind and name of the resource"),
    AnswerField("detail", "text", "detail", "what was asked of it; credentials are hidden", 2),
    AnswerField("result", "text", "result", "ok, or the error of this resource", 1),
    AnswerField("type", "text", "type", "kind of the resource", 11),
    AnswerField("name", "text", "name", "its name", 12),
    AnswerField("validate_only", "flag", "dry run", "only to be checked, not done", 6),
    AnswerField("api", "text", "API", "name of the API", 8),
    AnswerField("broker", "text", "broker", "address and port of the broker", 9),
    AnswerField("packet", "count", "packet", "packet of the request, for `kwsniff show`", 4),
)

# What an administrative call asks of which resource, and how each one went: out of decoded bodies.
#
# Each API has a function that gives a Change for every resource of a request. The result of one is looked up
# in the response by its name, by its place in the list, or is that of the whole response.

ACL_TYPES = {1: "any", 2: "topic", 3: "group", 4: "cluster", 5: "transactional id", 6: "token", 7: "user"}
CONFIG_TYPES = {2: "topic", 4: "broker", 8: "broker logger", 16: "client metrics", 32: "group"}
OPERATIONS = {
    1: "any", 2: "all", 3: "read", 4: "write", 5: "create", 6: "delete", 7: "alter", 8: "describe",
    9: "cluster action", 10: "describe configs", 11: "alter configs", 12: "idempotent write",
    13: "create tokens", 14: "describe tokens", 15: "two phase commit",
}  # fmt: skip
PERMISSIONS = {1: "any", 2: "deny", 3: "allow"}
PATTERNS = {1: "any", 2: "match", 3: "literal", 4: "prefixed"}
CONFIG_OPERATIONS = {0: "set", 1: "delete", 2: "append", 3: "subtract"}
MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
"""Numbers of the protocol, by the guide's enumerations."""


class Change(NamedTuple):
    """What is asked of one resource."""

    type: str
    name: str | None
    detail: str = ""
    key: str | None = None
    """The name that its result has in the response, if it is another."""


Maker = Callable[[Row], Iterator[Change]]


class Action(NamedTuple):
    """An API that changes something."""

    verb: str
    changes: Maker
    results: tuple[str, ...] = ()
    """Fields of the response that list results, whichever it has."""
    names: tuple[str, ...] = ()
    """Fields of a result that name it; none: results are in the order of the request."""


def changes_of(api_key: int, request: Row, response: Row) -> Iterator[tuple[Change, int | None]]:
    """Each change of a call with its error code, None where the response does not tell."""
    action = ACTIONS[api_key]
    whole = response.get("error_code")
    results: list[Row] = next((response[name] for name in action.results if response.get(name)), [])
    named = {str(each.get(name)): each for each in results for name in action.names if name in each}
    for at, change in enumerate(action.changes(request)):
        result = named.get(str(change.key or change.name))
        if not action.names and at < len(results):
            result = results[at]
        code = whole if result is None else first_error(result)
        yield change, whole or code


def first_error(value: Any) -> int | None:
    """The first non-zero error code anywhere in it, 0 if all are zero, None if there is none."""
    if isinstance(value, list):
        codes = [first_error(each) for each in value]
    elif isinstance(value, dict):
        own = value.get("error_code")
        inner = [first_error(each) for each in value.values() if isinstance(each, dict | list)]
        codes = [own if isinstance(own, int) else None, *inner]
    else:
        return None
    return next((code for code in codes if code), 0 if 0 in codes else None)


def _size(topic: Row) -> Iterator[str]:
    if topic.get("assignments"):
        yield f"{len(topic['assignments'])} partitions assigned"
        return
    count = topic.get("num_partitions")
    yield f"{_default(count)} partition{'' if count == 1 else 's'}"
    yield f"replication {_default(topic.get('replication_factor'))}"


def _default(number: int | None) -> str:
    return "default" if number in (None, -1) else str(number)


def _configs(each: Row) -> Iterator[str]:
    for config in each.get("configs") or ():
        operation = config.get("config_operation")
        verb = "" if operation in (None, 0) else f"{CONFIG_OPERATIONS.get(operation, operation)} "
        value = "" if operation == 1 else f"={config.get('value')}"
        yield f"{verb}{config['name']}{value}"


def _acl(each: Row, suffix: str = "") -> str:
    operation = _of_type(OPERATIONS, each["operation"])
    permission = _of_type(PERMISSIONS, each["permission_type"])
    pattern = each.get(f"resource_pattern_type{suffix}", each.get(f"pattern_type{suffix}"))
    shown = PATTERNS.get(pattern, "literal") if pattern is not None else "literal"
    who = each.get(f"principal{suffix}") or "anybody"
    return f"{permission} {operation} to {who} from {each.get(f'host{suffix}') or 'anywhere'} ({shown})"


def _of_type(types: dict[int, str], number: int) -> str:
    return types.get(number, str(number))


def _create_topic(each: Row) -> Change:
    return Change("topic", each["name"], ", ".join((*_size(each), *_configs(each))))


def _delete_topic(each: Row) -> Change:
    return Change("topic", each.get("name") or each.get("topic_id"))


def _delete_records(each: Row) -> Change:
    parts = [f"{part['partition_index']} before {part['offset']}" for part in each["partitions"]]
    return Change("topic", each["name"], "partitions " + ", ".join(parts))


def _create_acl(each: Row) -> Change:
    return Change(f"acl of {_of_type(ACL_TYPES, each['resource_type'])}", each["resource_name"], _acl(each))


def _delete_acl(each: Row) -> Change:
    kind = _of_type(ACL_TYPES, each["resource_type_filter"])
    return Change(f"acl of {kind}", each.get("resource_name_filter"), _acl(each, "_filter"))


def _configure(each: Row) -> Change:
    kind = _of_type(CONFIG_TYPES, each["resource_type"])
    return Change(kind, each["resource_name"], ", ".join(_configs(each)))


def _add_partitions(each: Row) -> Change:
    return Change("topic", each["name"], f"to {each['count']} partitions")


def _reassign(each: Row) -> Change:
    parts = [f"{part['partition_index']} to {part['replicas']}" for part in each["partitions"]]
    return Change("topic", each["name"], "partitions " + ", ".join(parts))


def _quota(each: Row) -> Change:
    parts = [f"{part['entity_type']} {part['entity_name'] or 'default'}" for part in each["entity"]]
    ops = [f"{op['key']}" + (" removed" if op["remove"] else f"={op['value']:g}") for op in each["ops"]]
    return Change("quota", ", ".join(parts), ", ".join(ops))


def _update_feature(each: Row) -> Change:
    return Change("feature", each["feature"], f"to {each.get('max_version_level')}")


def _each(name: str, change: Callable[[Any], Change]) -> Maker:
    """A change for each item of a list of the request."""

    def changes(request: Row) -> Iterator[Change]:
        yield from map(change, request.get(name) or ())

    return changes


def _delete_topics(request: Row) -> Iterator[Change]:
    for name in request.get("topic_names") or ():
        yield Change("topic", name)
    yield from map(_delete_topic, request.get("topics") or ())


def _log_dirs(request: Row) -> Iterator[Change]:
    for each in request.get("dirs") or ():
        for topic in each["topics"]:
            parts = _numbers(topic["partitions"])
            yield Change("topic", topic["name"], f"partitions {parts} to {each['path']}")


def _numbers(partitions: Any) -> str:
    return ",".join(str(number) for number in partitions or ())


def _token(request: Row) -> Iterator[Change]:
    yield Change("token", request.get("owner_principal_name") or None)


def _elections(request: Row) -> Iterator[Change]:
    kind = {0: "preferred", 1: "unclean"}.get(request.get("election_type", 0), "")
    for each in request.get("topic_partitions") or [{"topic": None, "partitions": []}]:
        what = f"partitions {_numbers(each['partitions'])}" if each["partitions"] else "all partitions"
        yield Change("topic", each["topic"], f"{kind} leaders of {what}")


def _offsets(request: Row) -> Iterator[Change]:
    for each in request.get("topics") or ():
        name = each.get("topic_name") or each.get("name")
        parts = [_offset(part) for part in each.get("partitions") or ()]
        yield Change("group", request.get("group_id"), f"{name} {', '.join(parts)}".strip(), key=name)


def _offset(part: Row) -> str:
    offset = part.get("start_offset", part.get("committed_offset"))
    return f"{part['partition_index']}" + ("" if offset is None else f" to {offset}")


def _scram(request: Row) -> Iterator[Change]:
    for name, verb in (("deletions", "delete"), ("upsertions", "set")):
        for each in request.get(name) or ():
            yield Change("user", each["name"], f"{verb} {_of_type(MECHANISMS, each['mechanism'])}")


def _of(kind: str, field: str) -> Maker:
    """One change, of what a field of the request names."""

    def changes(request: Row) -> Iterator[Change]:
        yield Change(kind, str(request.get(field)))

    return changes


ACTIONS: dict[int, Action] = {
    19: Action("create", _each("topics", _create_topic), ("topics",), ("name",)),
    20: Action("delete", _delete_topics, ("responses",), ("name", "topic_id")),
    21: Action("delete records", _each("topics", _delete_records), ("topics",), ("name",)),
    30: Action("create", _each("creations", _create_acl), ("results",)),
    31: Action("delete", _each("filters", _delete_acl), ("filter_results",)),
    33: Action("replace settings", _each("resources", _configure), ("responses",), ("resource_name",)),
    34: Action("move", _log_dirs, ("results",), ("topic_name",)),
    37: Action("add partitions", _each("topics", _add_partitions), ("results",), ("name",)),
    38: Action("create", _token),
    39: Action("renew", _token),
    40: Action("expire", _token),
    42: Action("delete", _each("groups_names", partial(Change, "group")), ("results",), ("group_id",)),
    43: Action("elect", _elections, ("replica_election_results",), ("topic",)),
    44: Action("change settings", _each("resources", _configure), ("responses",), ("resource_name",)),
    45: Action("reassign", _each("topics", _reassign), ("responses",), ("name",)),
    47: Action("delete offsets", _offsets, ("topics",), ("name",)),
    49: Action("change", _each("entries", _quota), ("entries",)),
    51: Action("change", _scram, ("results",), ("user",)),
    57: Action("update", _each("feature_updates", _update_feature), ("results",), ("feature",)),
    64: Action("unregister", _of("broker", "broker_id")),
    80: Action("add", _of("voter", "voter_id")),
    81: Action("remove", _of("voter", "voter_id")),
    91: Action("set offsets", _offsets, ("responses",), ("topic_name",)),
    92: Action("delete offsets", _offsets, ("responses",), ("topic_name",)),
    94: Action("unregister", _of("controller", "controller_id")),
}
"""APIs that change something, by key."""
