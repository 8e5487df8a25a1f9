"""How the kernels of this package are compiled.

Without numba's run-time system: it counts references to every view of an array, with a locked instruction
each, and that took longer than the work. So kernels cannot allocate; what they need is given to them.

numba registers all that it could compile, a thousand functions, before it loads what it has compiled. That is
a seventh of a second of every start, and only compiling needs it, which does it again for itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from numba import njit

F = TypeVar("F", bound=Callable[..., Any])


def kernel(function: F) -> F:
    """Compile when first called, and keep the result in numba's cache; other threads run meanwhile."""
    compiled: F = njit(cache=True, nogil=True, _nrt=False)(function)  # type: ignore[call-overload]
    _load_at_once(compiled)
    return compiled


def inlined(function: F) -> F:
    """As `kernel`, and part of every kernel that calls it: for what is shorter than a call."""
    compiled: F = njit(cache=True, _nrt=False, inline="always")(function)  # type: ignore[call-overload]
    return compiled


def _load_at_once(compiled: Any) -> None:
    """Let numba load from its cache without registering first; where it has other insides, leave it be."""
    cache = getattr(compiled, "_cache", None)
    load = getattr(cache, "_load_overload", None)
    guard = getattr(cache, "_guard_against_spurious_io_errors", None)
    if cache is None or load is None or guard is None:
        return

    def load_overload(sig: Any, target_context: Any) -> Any:
        with guard():
            return load(sig, target_context)

    cache.load_overload = load_overload
