"""What error codes are due to: which need somebody's attention, and which belong to how Kafka works.

Codes without an entry need attention if clients may not try again, and are transient if they may
(`dissectors/errors`)."""

from __future__ import annotations

from typing import NamedTuple

NORMAL, TRANSIENT, ATTENTION = "normal", "transient", "attention"


class Cause(NamedTuple):
    """Of one error code."""

    kind: str
    """`normal`: part of a protocol; `transient`: noise unless it stays; `attention`: somebody has to act."""
    words: str


CAUSES = {
    -1: Cause(ATTENTION, "the broker failed; its log says how"),
    1: Cause(
        ATTENTION, "the offset is gone or was never there: records expired before they were read, or a reset"
    ),
    2: Cause(ATTENTION, "a batch arrived damaged, or was refused by the broker's checks"),
    3: Cause(ATTENTION, "no such topic or partition, or the client may not know of it"),
    5: Cause(TRANSIENT, "an election is under way, or the topic is being made"),
    7: Cause(ATTENTION, "replicas did not take the records in time"),
    10: Cause(
        ATTENTION, "a batch larger than max.message.bytes of the topic or message.max.bytes of the broker"
    ),
    14: Cause(TRANSIENT, "the coordinator is still loading"),
    15: Cause(TRANSIENT, "the coordinator's topic has no leader, or is being made"),
    16: Cause(TRANSIENT, "the coordinator has moved"),
    17: Cause(ATTENTION, "a name that topics may not have, or an internal topic"),
    18: Cause(ATTENTION, "a batch larger than segment.bytes"),
    19: Cause(ATTENTION, "fewer replicas in sync than min.insync.replicas: nothing can be written"),
    20: Cause(ATTENTION, "fewer replicas in sync than min.insync.replicas took the records"),
    22: Cause(TRANSIENT, "a member of an older generation of its group"),
    27: Cause(NORMAL, "the group rebalances"),
    35: Cause(ATTENTION, "the broker does not offer this version"),
    36: Cause(TRANSIENT, "the topic is already there"),
    41: Cause(TRANSIENT, "the controller has moved"),
    45: Cause(ATTENTION, "records of an idempotent producer are missing or out of order"),
    47: Cause(ATTENTION, "a newer producer with the same transactional id is at work"),
    51: Cause(TRANSIENT, "the transaction before is still being completed"),
    56: Cause(ATTENTION, "the broker cannot write to its disk"),
    59: Cause(ATTENTION, "the broker has forgotten the producer: its records have expired"),
    70: Cause(NORMAL, "the fetch session was given to somebody else, or the broker restarted"),
    71: Cause(NORMAL, "the fetch session and the broker are out of step"),
    72: Cause(ATTENTION, "the leader has no listener of the name that the client came by"),
    78: Cause(TRANSIENT, "the leader is new and does not know its high watermark yet"),
    79: Cause(NORMAL, "a new member is given its id"),
    80: Cause(TRANSIENT, "the preferred replica is not in sync"),
    84: Cause(NORMAL, "the preferred replica leads already"),
    85: Cause(NORMAL, "there is no reassignment to cancel"),
    88: Cause(TRANSIENT, "an open transaction still holds offsets of the group"),
    90: Cause(ATTENTION, "a newer producer with the same transactional id is at work"),
    100: Cause(TRANSIENT, "the topic was made anew, or is not known yet"),
    106: Cause(NORMAL, "the fetch session began before topics had ids"),
    120: Cause(ATTENTION, "the transaction must be aborted"),
    122: Cause(NORMAL, "the share session is not known any more"),
    123: Cause(NORMAL, "the share session and the broker are out of step"),
    129: Cause(NORMAL, "the client is to learn its brokers anew"),
}

LEADER = (6, 9, 74, 75)
"""Errors of a client that asks who does not lead: NOT_LEADER_OR_FOLLOWER and those of leader epochs."""
EXPELLED = (25, 110, 113)
"""Errors of a member that its group no longer has."""
AUTHENTICATION = (33, 34, 58)
AUTHORIZATION = (29, 30, 31, 53, 65)
THROTTLING = (89,)
ELSEWHERE = frozenset((*LEADER, *EXPELLED, *AUTHENTICATION, *AUTHORIZATION, *THROTTLING))
"""Errors that rules of their own are about."""


def cause(code: int | None, retriable: bool | None) -> Cause:
    """That of an error code."""
    known = None if code is None else CAUSES.get(code)
    return known or Cause(TRANSIENT if retriable else ATTENTION, "")
