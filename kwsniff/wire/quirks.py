"""Behaviour that is in no published table of the protocol, each with its reason."""

from __future__ import annotations

from struct import Struct

from kwsniff.binary import DecodeError, uvarint

PRODUCE, FETCH, FIND_COORDINATOR, JOIN_GROUP, SYNC_GROUP = 0, 1, 10, 11, 14
SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE = 17, 18, 36

UNSUPPORTED_VERSION = 35

_int16 = Struct(">h").unpack_from
_int32 = Struct(">i").unpack_from


def is_downgraded(version: int, data: bytes, pos: int, end: int) -> bool:
    """Whether an ApiVersions response has a v0 body although another version was asked for.

    A broker that does not know the requested version cannot know its layout either, so it answers with
    v0 and error 35 (KIP-511).
    """
    if version == 0 or end - pos < 2:
        return False
    return bool(_int16(data, pos)[0] == UNSUPPORTED_VERSION)


def expects_no_reply(version: int, data: bytes, pos: int, end: int) -> bool:
    """Whether a Produce request, at its body, has acks=0: brokers do not answer those (protocol guide).

    Read apart from the decoders because it decides about pairing, which must work on a broken body too.
    """
    if version >= 9:
        try:
            length, pos = uvarint(data, pos, end)
        except DecodeError:
            return False
        pos += max(length - 1, 0)
    elif version >= 3 and end - pos >= 2:
        pos += 2 + max(_int16(data, pos)[0], 0)
    return end - pos >= 2 and _int16(data, pos)[0] == 0


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


def sasl_user(mechanism: str | None, token: bytes) -> str | None:
    """The user name in a client's first SASL token, if the mechanism shows it. Never the password.

    PLAIN is authzid NUL authcid NUL password (RFC 4616); SCRAM begins n,,n=user, with = and comma escaped
    (RFC 5802).
    """
    name = b""
    if mechanism == "PLAIN" and token.count(b"\0") == 2:
        name = token.split(b"\0")[1]
    elif mechanism and mechanism.startswith("SCRAM-") and token[:2] in (b"n,", b"y,", b"p="):
        for part in token.split(b",")[2:]:
            if part.startswith(b"n="):
                name = part[2:].replace(b"=2C", b",").replace(b"=3D", b"=")
                break
    text = name.decode("utf-8", "replace")
    return text if text and text.isprintable() else None
