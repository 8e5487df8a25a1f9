"""Compiles the kernels where a wheel is built or the sources are installed in place.

Neither fails when they can't be compiled: the kernels are interpreted then, and one line says so.
`KWSNIFF_KERNELS_CPU` chooses the processor, see docs/design.md.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

COMPILED = "kwsniff/native/compiled"
LONGEST = 1800
"""Seconds; it takes one minute."""


class Kernels(BuildHookInterface):  # type: ignore[type-arg]
    """Puts the object file of the kernels into the wheel, or into sources that are installed in place."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before the wheel is written; `version` is "standard" or "editable"."""
        cpu = os.environ.get("KWSNIFF_KERNELS_CPU", "native")
        if cpu == "none":
            return
        try:
            path = self._compiled(cpu)
        except (OSError, subprocess.SubprocessError, ValueError) as error:
            self.app.display_warning(
                f"kwsniff: the kernels are not compiled and will be slow: {_last(error)}"
            )
            return
        if version != "editable":
            build_data["force_include"][str(path)] = f"{COMPILED}/{path.name}"
            platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{platform}"

    def _compiled(self, cpu: str) -> Path:
        """The object file, made unless it is there. In a process of its own: numba is changed for it."""
        root = Path(self.root)
        command = [sys.executable, "-m", "kwsniff.engine.build", "--cpu", cpu]
        paths = [str(root), *filter(None, [os.environ.get("PYTHONPATH")])]
        around = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        run = subprocess.run(
            command, cwd=root, env=around, check=True, capture_output=True, text=True, timeout=LONGEST
        )
        path = Path(run.stdout.strip())
        if path.parent != root / COMPILED or not path.is_file():
            raise ValueError(f"{path} is not among the sources")
        return path


def _last(error: Exception) -> str:
    """What a failed command said at the end, in one line."""
    said = getattr(error, "stderr", None) or str(error)
    return str(said).strip().rpartition("\n")[2]
