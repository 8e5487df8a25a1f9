"""What a body says in all: rows of `facts`."""

from __future__ import annotations

from typing import Any

from kwsniff.kernel.mode import kernel
from kwsniff.kernel.numbers import NONE
from kwsniff.spec import instructions as i

# Constants of another module, as numbers that the compiler takes in.
_GROUP, _MEMBER, _TRANSACTIONAL = (i.REGISTER[role] for role in ("group", "member", "transactional_id"))
_SOFTWARE, _SOFTWARE_VERSION = i.REGISTER["software_name"], i.REGISTER["software_version"]
_MECHANISM, _PROTOCOL_TYPE = i.REGISTER["mechanism"], i.REGISTER["protocol_type"]
_COORDINATOR, _COORDINATOR_TYPE = i.REGISTER["coordinator_key"], i.REGISTER["coordinator_type"]
_GROUP_PROTOCOL, _REASON, _RACK = (i.REGISTER[role] for role in ("group_protocol", "reason", "rack"))
_THROTTLE, ACKS = i.REGISTER["throttle"], i.REGISTER["acks"]
_MAX_WAIT, _MIN_BYTES = i.REGISTER["max_wait"], i.REGISTER["min_bytes"]
_SESSION, _EPOCH = i.REGISTER["session_id"], i.REGISTER["session_epoch"]
_GENERATION, _VALIDATE_ONLY = i.REGISTER["generation"], i.REGISTER["validate_only"]


@kernel
def clear(t: Any, side: int) -> None:
    """Let row `side` of `facts` say nothing."""
    fact = t.facts[side]
    fact.clean = fact.code = fact.offset = fact.trailing = fact.flags = fact.columns = fact.errors = 0
    fact.group = fact.member = fact.transactional_id = fact.software_name = fact.software_version = -1
    fact.mechanism = fact.protocol_type = fact.coordinator_key = fact.group_protocol = fact.reason = -1
    fact.rack = -1
    fact.error = fact.throttle = fact.acks = fact.max_wait = fact.min_bytes = NONE
    fact.session_id = fact.session_epoch = NONE
    fact.coordinator_type = fact.generation = fact.validate_only = fact.token = fact.token_end = NONE
    fact.records = fact.record_bytes = NONE
    fact.name_first = fact.names = fact.row_first = fact.rows = fact.brokers = fact.resources = 0
    fact.damaged = fact.tail = 0


@kernel
def fill_facts(r: Any, fact: Any) -> None:
    """Write what the fixed registers hold into a row of `facts`."""
    fact.group, fact.member, fact.transactional_id = r[_GROUP], r[_MEMBER], r[_TRANSACTIONAL]
    fact.software_name, fact.software_version = r[_SOFTWARE], r[_SOFTWARE_VERSION]
    fact.mechanism, fact.protocol_type = r[_MECHANISM], r[_PROTOCOL_TYPE]
    fact.coordinator_key, fact.coordinator_type = r[_COORDINATOR], r[_COORDINATOR_TYPE]
    fact.group_protocol, fact.reason, fact.rack = r[_GROUP_PROTOCOL], r[_REASON], r[_RACK]
    fact.throttle, fact.acks = r[_THROTTLE], r[ACKS]
    fact.max_wait, fact.min_bytes = r[_MAX_WAIT], r[_MIN_BYTES]
    fact.session_id, fact.session_epoch = r[_SESSION], r[_EPOCH]
    fact.generation, fact.validate_only = r[_GENERATION], r[_VALIDATE_ONLY]
    fact.token, fact.token_end = r[i.TOKEN], r[i.TOKEN + 1]
