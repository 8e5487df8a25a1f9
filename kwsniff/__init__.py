"""Passive analyzer of the Kafka wire protocol.

    import kwsniff

    kwsniff.summary("trace.pcapng")              # what `kwsniff report` says; a notebook shows it
    kwsniff.calls("trace.pcapng")                # a DataFrame, a row for each request with its response
    for batch in kwsniff.events("captures"):     # everything seen, as Arrow batches
        ...

`clients`, `slow`, `groups`, `errors`, `audit`, `auth`, `findings`, `upgrade_check` and `compare` are the
answers of the commands of these names as DataFrames, `decode_body` decodes one message body, and
`use_dissectors` takes dissectors of one's own. `help` has examples of each. All are imported when first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
    from kwsniff.config import Config
    from kwsniff.spec.binary import DecodeError

__version__ = "0.1.0"
__all__ = [
    "Config",
    "DecodeError",
    "Summary",
    "__version__",
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

_HOMES = {
    "Config": "kwsniff.config",
    "DecodeError": "kwsniff.spec.binary",
    **dict.fromkeys(("calls", "decode_body", "events", "use_dissectors"), "kwsniff.api.decoded"),
}
"""Where names are; the others are in `kwsniff.api.whole`."""


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name, "kwsniff.api.whole" if name in __all__ else None)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(importlib.import_module(home), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
