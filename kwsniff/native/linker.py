"""Makes a shared library of compiled kernels, with the linker of the system.

The system loads a library in 2 ms, and the pages of its file are shared by all processes; LLVM takes 40 ms to
load an object file, and 50 MB of each process.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory


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
