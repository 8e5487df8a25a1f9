"""`kwsniff auth`: its options, and what they ask for."""

from __future__ import annotations

from kwsniff.cli.asked import Asked, asking

EXAMPLES = (
    "kwsniff auth trace.pcapng",
    "kwsniff auth captures/ --table failures -f csv",
)


@asking
def auth(asked: Asked) -> int:
    """Show who logs in how, who fails, and what is unencrypted.

    Tables: logins, failures, denied.
    """
    from kwsniff.answers.auth import Auth
    from kwsniff.cli.answering import answer

    return answer(asked, Auth())
