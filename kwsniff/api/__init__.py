"""What Python programs and notebooks call: the functions behind the names of the package itself."""

from kwsniff.api.answers import (
    audit,
    auth,
    clients,
    compare,
    errors,
    findings,
    groups,
    slow,
    upgrade_check,
)
from kwsniff.api.notebook import Summary, summary
from kwsniff.api.rows import calls, decode_body, events, use_dissectors

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
