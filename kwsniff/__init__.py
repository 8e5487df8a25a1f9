"""Passive analyzer of the Kafka wire protocol.

`calls` gives the calls of captures as a pandas DataFrame, `events` everything seen as Arrow batches,
`decode_body` one message body as a dict. Each is imported when it is first used.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kwsniff.api import calls, events
    from kwsniff.binary import DecodeError
    from kwsniff.config import Config
    from kwsniff.spec.body import decode_body

__version__ = "0.1.0"
__all__ = ["Config", "DecodeError", "__version__", "calls", "decode_body", "events"]

_HOMES = {
    "Config": "kwsniff.config",
    "DecodeError": "kwsniff.binary",
    "calls": "kwsniff.api",
    "decode_body": "kwsniff.spec.body",
}


class _Events(ModuleType):
    """`kwsniff.events` is the module of the words events use, and called, it is `kwsniff.api.events`."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return importlib.import_module("kwsniff.api").events(*arguments, **options)


importlib.import_module("kwsniff.events")
sys.modules["kwsniff.events"].__class__ = _Events


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
