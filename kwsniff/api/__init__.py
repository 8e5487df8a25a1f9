"""What Python programs and notebooks call: the functions behind the names of the package itself."""

from kwsniff.api.decoded import calls, decode_body, events, use_dissectors
from kwsniff.api.whole import (
    Summary,
    audit,
    auth,
    clients,
    compare,
    errors,
    findings,
    groups,
    slow,
    summary,
    upgrade_check,
)

__all__ = [
    "Summary",
    "audit",
    "auth",
    "calls",
    "clients",
    "compare",
    "decode_body",
    "errors",
    "events",
    "findings",
    "groups",
    "slow",
    "summary",
    "upgrade_check",
    "use_dissectors",
]
