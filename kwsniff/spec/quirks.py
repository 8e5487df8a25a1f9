"""Behaviour that is in no published table of the protocol, each with its reason."""

from __future__ import annotations

from struct import Struct

PRODUCE, FETCH, FIND_COORDINATOR, JOIN_GROUP, SYNC_GROUP = 0, 1, 10, 11, 14
SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE = 17, 18, 36

UNSUPPORTED_VERSION = 35

_int16 = Struct(">h").unpack_from


def is_downgraded(version: int, data: bytes, pos: int, end: int) -> bool:
    """Whether an ApiVersions response has a v0 body although another version was asked for.

    A broker that does not know the requested version cannot know its layout either, so it answers with
    v0 and error 35 (KIP-511).
    """
    if version == 0 or end - pos < 2:
        return False
    return bool(_int16(data, pos)[0] == UNSUPPORTED_VERSION)


def starts_raw_tokens(api_key: int, version: int) -> bool:
    """Whether raw SASL tokens follow: SaslHandshake v0 is followed by length-prefixed tokens that are no
    Kafka messages; v1 wraps them in SaslAuthenticate (KIP-152)."""
    return api_key == SASL_HANDSHAKE and version == 0


def may_answer_with_zero(api_key: int, version: int) -> bool:
    """Whether the response may carry correlation id 0: FindCoordinator before 0.8.3 (KAFKA-1841)."""
    return api_key == FIND_COORDINATOR and version == 0


def held_by_broker(api_key: int) -> float:
    """Seconds for which a broker may hold a request of this API, whatever the request says: members of a
    group wait for each other up to the rebalance timeout, by default `max.poll.interval.ms`, 5 minutes."""
    return 300.0 if api_key in (JOIN_GROUP, SYNC_GROUP) else 0.0
