"""How the kernels of this package are compiled.

Without numba's run-time system: it counts references to every view of an array, with a locked instruction
each, and that took longer than the work. So kernels cannot allocate; what they need is given to them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from numba import njit

F = TypeVar("F", bound=Callable[..., Any])


def kernel(function: F) -> F:
    """Compile when first called, and keep the result in numba's cache; other threads run meanwhile."""
    compiled: F = njit(cache=True, nogil=True, _nrt=False)(function)  # type: ignore[call-overload]
    return compiled


def inlined(function: F) -> F:
    """As `kernel`, and part of every kernel that calls it: for what is shorter than a call."""
    compiled: F = njit(cache=True, _nrt=False, inline="always")(function)  # type: ignore[call-overload]
    return compiled
