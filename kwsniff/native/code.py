"""Finding and loading the compiled kernels that fit this machine and these sources.

A file's name carries the processor that it was made for and a digest of the sources of all kernels, so that
neither a stale one nor one with instructions that this machine doesn't have is ever loaded. It is a shared
library if there was a linker where it was made, which the system loads in no time; else an object file, for
which llvmlite is needed, without numba: 40 ms and 70 MB.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable
from functools import cache
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

FOLDER = Path(__file__).parent / "compiled"
ENDING = ".kernels"
ACT, READ = "kwsniff_act", "kwsniff_read"
"""What can be called: `kwsniff.engine.follow.act`, `kwsniff.net.layers.read`."""
BOUNDS = "kwsniff_bounds"
"""In code that checks indexes: returns the address of what is known of the first wrong one."""
COVERED = "kwsniff_covered"
"""In the same code: returns the address of how often each block of it ran: how many there are, then a byte of
each."""
STOPPED = -3
"""What functions return that raised: kernels stopped (`kwsniff.engine.tables.Stopped`), or, in code that
checks indexes, one was wrong."""
AROUND = frozenset(
    (
        "analyze",
        "callcolumns",
        "checkpoint",
        "decrypting",
        "details",
        "drained",
        "emitter",
        "eventcolumns",
        "intake",
        "machine",
        "programs",
        "rewriting",
    )
)
"""Modules of `kwsniff.engine` that are Python's: the driver around the kernels."""
BESIDE = (
    "rows/events.py", "rows/schema.py", "spec/instructions.py", "native/mode.py", "native/octets.py",
    "native/rowcopies.py",
    *(
        f"net/{name}.py"
        for name in ("copies", "inout", "ip", "layers", "link", "segments", "tcp", "tunnel")
    ),
)  # fmt: skip
"""Sources of kernels elsewhere in this package."""
NATIVE = "native"
"""In place of a level: this very machine's processor."""
CHECKED = "checked"
"""In place of a level: code that looks at every index first, which runs if `KWSNIFF_KERNELS` says so."""
LEVELS: dict[str, frozenset[str]] = {
    "x86-64-v3": frozenset(("avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "popcnt")),
    "x86-64-v2": frozenset(("cx16", "popcnt", "sse3", "sse4.1", "sse4.2", "ssse3")),
    "generic": frozenset(),
}
"""Processors that code can be compiled for to be handed on, best first, and the features that they have
(x86-64 psABI, "Micro-Architecture Levels"). `generic` is what every machine of an architecture can do."""
Native = Callable[..., int]


@cache
def digest() -> str:
    """Of all sources that the compiled code is made from."""
    return digest_now()


def digest_now() -> str:
    """The same of the files as they are now."""
    said = blake2b(digest_size=8)
    package = Path(__file__).parents[1]
    sources = [source for source in sorted((package / "engine").glob("*.py")) if source.stem not in AROUND]
    for source in [*sources, *(package / each for each in BESIDE)]:
        said.update(source.read_bytes())
    return said.hexdigest()


def path_of(cpu: str) -> Path:
    """Where the code for a processor (NATIVE, CHECKED or one of LEVELS) is kept."""
    made_for = cpu
    if cpu in (NATIVE, CHECKED):
        made_for = ("" if cpu == NATIVE else f"{CHECKED}-") + _this_machine()
    return FOLDER / f"{architecture()}-{made_for}-{digest()}{ENDING}"


def architecture() -> str:
    """Name of this machine's instruction set and object format."""
    uname = os.uname()
    return f"{uname.machine}-{uname.sysname}".lower()


def fitting() -> Path | None:
    """The best code that this machine can run, if there is some."""
    ours, about = f"{architecture()}-", f"-{digest()}{ENDING}"
    there = {each.name[len(ours) : -len(about)]: each for each in FOLDER.glob(f"{ours}*{about}")}
    there = {name: each for name, each in there.items() if not name.startswith(CHECKED)}
    if not there:
        return None
    for name, each in there.items():
        if name not in LEVELS and _made_here(each):
            return each
    if (own := there.get(_this_machine())) is not None:
        return own
    able = [level for level, needs in LEVELS.items() if level in there and needs <= _features()]
    return there[able[0]] if able else None


def load(symbol: str) -> Native | None:
    """One of the compiled functions, or None if there is no code for this machine."""
    found = functions()
    return None if found is None else found[symbol]


@cache
def functions() -> dict[str, Native] | None:
    """The compiled functions by name, or None if there is no code for this machine."""
    wanted = os.environ.get("KWSNIFF_KERNELS")
    if wanted == "interpreted":
        return None
    if wanted == CHECKED:
        return _loaded_checked()
    try:
        path = fitting()
        return _loaded(path) if path is not None else None
    except Exception:  # llvmlite is missing, or refuses the file: then kernels are interpreted
        return None


def places(tables: Iterable[Any]) -> NDArray[np.int64]:
    """What compiled functions take: the address and the length of each table."""
    return np.array([word for table in tables for word in (table.ctypes.data, len(table))], np.int64)


PLACE, SEAL = 8, 16
"""Bytes behind the code: where it was made, and a digest of all before: damaged code ends the process."""
PROCESSOR = (
    b"vendor_id", b"cpu family", b"model", b"model name", b"stepping", b"microcode", b"flags",
    b"CPU implementer", b"CPU architecture", b"CPU variant", b"CPU part", b"CPU revision", b"Features",
)  # fmt: skip
"""What Linux says of a processor that tells which one it is, see proc_cpuinfo(5)."""


def place() -> bytes:
    """This machine's processor, as the system knows it: asking LLVM takes longer than loading code. The same
    processor is another one after some updates of the system; then LLVM is asked."""
    try:
        with open("/proc/cpuinfo", "rb") as file:
            first = file.read(8192).partition(b"\n\n")[0]
    except OSError:
        return bytes(PLACE)
    about = [line for line in first.splitlines() if line.partition(b":")[0].strip() in PROCESSOR]
    return blake2b(b"\n".join(about), digest_size=PLACE).digest() if about else bytes(PLACE)


def _made_here(path: Path) -> bool:
    """Whether code was made on this very machine, or one that is the same."""
    with path.open("rb") as file:
        file.seek(max(path.stat().st_size - PLACE - SEAL, 0))
        return file.read(PLACE) == place() != bytes(PLACE)


def sealed(code: bytes) -> bytes:
    """What is written."""
    code += place()
    return code + blake2b(code, digest_size=SEAL).digest()


def opened(data: bytes) -> bytes:
    """The code of a file. Raises ValueError if it is not as it was written."""
    if len(data) < PLACE + SEAL or blake2b(data[:-SEAL], digest_size=SEAL).digest() != data[-SEAL:]:
        raise ValueError("damaged")
    return data[: -PLACE - SEAL]


SHARED = 3
"""ET_DYN of ELF: a shared library."""
_alive: list[Any] = []
"""What has to live as long as the code does."""


def _loaded(path: Path) -> dict[str, Native]:
    at = _addresses(path, (ACT, READ))
    kind = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    return {symbol: kind(address) for symbol, address in at.items()}


def _addresses(path: Path, symbols: Iterable[str]) -> dict[str, int]:
    """Load code; where each of the functions lies."""
    code = opened(path.read_bytes())
    if is_library(code):
        library = ctypes.CDLL(str(path))
        _alive.append(library)
        return {symbol: ctypes.cast(library[symbol], ctypes.c_void_p).value or 0 for symbol in symbols}
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(reloc="pic", jit=True)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    _alive.append(engine)
    return {symbol: engine.get_function_address(symbol) for symbol in symbols}


def is_library(code: bytes) -> bool:
    """Whether code is linked (ELF, `e_type`)."""
    return code[:4] == b"\x7fELF" and SHARED in code[16:18]


class _Wrong(ctypes.Structure):
    """What `kwsniff.engine.build` writes down of a wrong index."""

    _fields_ = (("place", ctypes.c_char_p), ("index", ctypes.c_int64), ("size", ctypes.c_int64))


def _loaded_checked() -> dict[str, Native]:
    """Functions that raise IndexError. Raises FileNotFoundError if there are none: who asks for checks is not
    served without."""
    at = _addresses(path_of(CHECKED), (ACT, READ, BOUNDS))
    wrong = _Wrong.from_address(_told(at.pop(BOUNDS)))
    kind = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    return {symbol: _raising(kind(address), wrong) for symbol, address in at.items()}


def _told(function: int) -> int:
    """What the function at an address, which takes nothing, returns."""
    return int(ctypes.CFUNCTYPE(ctypes.c_int64)(function)())


def covered() -> NDArray[np.uint8]:
    """How often each block of the checked code ran, modulo 256: fuzzers look there, and write zeros."""
    at = _told(_addresses(path_of(CHECKED), (COVERED,))[COVERED])
    count = ctypes.c_int64.from_address(at).value
    return np.ctypeslib.as_array((ctypes.c_uint8 * count).from_address(at + 8))


def _raising(native: Native, wrong: _Wrong) -> Native:
    def call(*given: int) -> int:
        code = native(*given)
        if code == STOPPED and wrong.place:
            place, wrong.place = wrong.place.decode(), None
            raise IndexError(f"{place}: {wrong.index} of {wrong.size}")
        return code

    return call


def _features() -> frozenset[str]:
    """What this machine's processor can do, in LLVM's words."""
    import llvmlite.binding as llvm

    return frozenset(name for name, there in llvm.get_host_cpu_features().items() if there)


def _this_machine() -> str:
    """The processor's name and, as virtual machines hide some, a digest of its features."""
    import llvmlite.binding as llvm

    about = ",".join(sorted(_features()))
    return f"{llvm.get_host_cpu_name()}+{blake2b(about.encode(), digest_size=4).hexdigest()}"


# Makes a shared library of compiled kernels, with the linker of the system.
#
# The system loads a library in 2 ms, and the pages of its file are shared by all processes; LLVM takes 40
# ms to load an object file, and 50 MB of each process.


def as_library(code: bytes) -> bytes:
    """Object code as a shared library; as it is where there is no linker that makes one of it."""
    linker = shutil.which("ld") if os.uname().sysname == "Linux" else None
    if linker is None:
        return code
    with TemporaryDirectory() as folder:
        source, made = Path(folder, "kernels.o"), Path(folder, "kernels.so")
        source.write_bytes(code)
        command = [linker, "-shared", "-z", "noexecstack", "--no-undefined", "-o", str(made), str(source)]
        run = subprocess.run(command, capture_output=True, check=False)
        return made.read_bytes() if run.returncode == 0 and made.exists() else code
