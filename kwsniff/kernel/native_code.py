"""Finding and loading the compiled kernels that fit this machine and these sources.

The object file's name carries a digest of the sources of this package, so that a stale one is never loaded.
llvmlite, without numba, loads it in a few milliseconds.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "compiled"
SYMBOL = "kwsniff_act"
AROUND = frozenset(("engine", "machine", "native_code", "told", "details", "identity", "programs"))
"""Modules of this package that are Python's: the driver around the kernels."""
Native = Callable[..., int]


def digest() -> str:
    """Of all sources that the compiled code is made from."""
    said = blake2b(digest_size=8)
    package = Path(__file__).parent
    sources = [source for source in sorted(package.glob("*.py")) if source.stem not in AROUND]
    for source in [*sources, package.parent / "spec" / "instructions.py", package.parent / "events.py"]:
        said.update(source.read_bytes())
    return said.hexdigest()


def path_of(architecture: str) -> Path:
    """Where the object file for an architecture is kept."""
    return FOLDER / f"{architecture}-{digest()}.o"


def architecture() -> str:
    """Name of this machine's instruction set and object format."""
    uname = os.uname()
    return f"{uname.machine}-{uname.sysname}".lower()


@cache
def load() -> Native | None:
    """The compiled `act`, or None if there is none for this machine."""
    if os.environ.get("KWSNIFF_KERNELS") == "interpreted":
        return None
    try:
        path = path_of(architecture())
        return _loaded(path.read_bytes()) if path.exists() else None
    except Exception:  # llvmlite is missing, or refuses the file: then kernels are interpreted
        return None


_alive: list[Any] = []
"""What has to live as long as the code does."""


def _loaded(code: bytes) -> Native:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(reloc="pic", jit=True)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    kind = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    _alive.append(engine)
    return kind(engine.get_function_address(SYMBOL))
