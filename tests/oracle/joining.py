"""What request and response of one call say together: topics, partitions, record data."""

from __future__ import annotations

from tests.oracle.bodies import Body, PartitionRow, rows
from tests.oracle.facts import Facts


def joined_topics(query: Facts, reply: Facts) -> tuple[list[str | None] | None, list[str | None] | None]:
    """Topics of the request and, each once, those that only the response names."""
    if not reply.topics or (reply.topics == query.topics and reply.topic_ids == query.topic_ids):
        return query.topics or None, query.topic_ids if query.topics else None
    if not query.topics:
        return reply.topics, reply.topic_ids
    asked = list(zip(query.topics, query.topic_ids or [None] * len(query.topics), strict=True))
    given = zip(reply.topics, reply.topic_ids or [None] * len(reply.topics), strict=True)
    pairs = list(dict.fromkeys([*asked, *given]))
    named = {name for name, uuid in pairs if name is not None and uuid is not None}
    pairs = [(name, uuid) for name, uuid in pairs if uuid is not None or name not in named]
    ids = [uuid for _, uuid in pairs]
    return [name for name, _ in pairs], ids if any(ids) else None


def joined_partitions(asked: Body | None, answer: Body | None) -> list[PartitionRow] | None:
    """The response's partitions, with the record data that the request carried for them."""
    given = rows(answer)
    if given is None:
        return rows(asked) or None
    if asked is None or not asked.partitions:
        return given or None
    sent = {row[:3]: row for row in asked.partitions}
    merged: list[PartitionRow] = []
    for row in given:
        mine = sent.pop(row[:3], None)
        merged.append(row if mine is None else (*row[:5], *mine[5:]))
    return merged + list(sent.values())


def record_sums(asked: Body | None, given: Body | None) -> tuple[int | None, int | None]:
    """Records and record bytes of the side that carries record data; None if neither does."""
    for body in (asked, given):
        if body is not None and body.record_bytes is not None:
            return body.record_count, body.record_bytes
    return None, None


def named_groups(query: Facts, reply: Facts) -> tuple[str | None, str | None]:
    """Group and transactional id of a call. FindCoordinator asks for one by a type: 0 for a group, which is
    also what versions without the type ask for, 1 for a transaction (KIP-98)."""
    group_id = query.group_id or reply.group_id
    transactional_id = query.transactional_id or reply.transactional_id
    key = query.extra.get("coordinator_key") if query.extra is not None else None
    if isinstance(key, str) and query.extra is not None:
        kind = query.extra.get("coordinator_type", 0)
        if kind == 0:
            group_id = key
        elif kind == 1:
            transactional_id = key
    return group_id, transactional_id
