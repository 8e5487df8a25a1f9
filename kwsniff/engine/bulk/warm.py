"""Whether the compiled kernels are there: numba may be missing, and compiling takes some twenty seconds once.

Theory of operation. numba keeps what it compiled in a cache, by source file and processor, and says nothing
of what is in it. So a run that used the kernels leaves a mark beside the cache, named after all that would
make numba compile again; a run that finds the mark will not have to wait.
"""

from __future__ import annotations

from contextlib import suppress
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

MISSING, COLD, READY = "missing", "cold", "ready"


def kernels() -> str:
    """READY: at once; COLD: after compiling; MISSING: not here, whatever the reason."""
    try:
        mark = _mark()
    except Exception:  # no numba, a platform it does not know, no place for its cache: all the same to us
        return MISSING
    return READY if mark.exists() else COLD


def mark_ready() -> None:
    """Note that the kernels have been compiled."""
    with suppress(Exception):
        _mark().touch()


def _mark() -> Path:
    import llvmlite.binding as llvm

    from kwsniff.engine.bulk.streams import follow

    said = blake2b(f"{version('numba')} {llvm.get_host_cpu_name()}".encode(), digest_size=8)
    for source in sorted(Path(__file__).parent.glob("*.py")):
        said.update(source.read_bytes())
    return Path(cast(Any, follow).stats.cache_path) / f"kwsniff-{said.hexdigest()}.ready"
