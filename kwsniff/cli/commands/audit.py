"""`kwsniff audit`: its options, and what they ask for."""

from __future__ import annotations

from kwsniff.cli.asked import Asked, asking

EXAMPLES = (
    "kwsniff audit trace.pcapng",
    "kwsniff audit captures/ --where 'api == \"DeleteTopics\"' -f csv",
)


@asking
def audit(asked: Asked) -> int:
    """Show who created, changed or deleted what.

    Topics, settings, ACLs, users, quotas, offsets and groups: a line for each, with its own result.
    Credentials are never shown.
    """
    from kwsniff.answers.audit import Audit
    from kwsniff.cli.answering import answer

    return answer(asked, Audit())
