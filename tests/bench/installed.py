"""kwsniff as a user has it just after `pip install`: a wheel in an environment of its own, never run before.

The dependencies are those of the interpreter that runs the bench, so nothing is downloaded.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from measure import ROOT, Run, measured


class Installed:
    """The environment in `folder`; `anew()` makes the next run a first one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._home = folder / "home"
        self._python = folder / "venv" / "bin" / "python"

    def install(self) -> None:
        """Build the wheel and make the environment. Raises `subprocess.CalledProcessError` when pip fails."""
        build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(self._folder)]
        subprocess.run([*build, str(ROOT)], check=True)
        subprocess.run(
            [sys.executable, "-m", "venv", "--without-pip", str(self._folder / "venv")], check=True
        )
        own = subprocess.check_output(
            [self._python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], text=True
        )
        self._packages = Path(own.strip())
        borrowed = [sysconfig.get_path("purelib"), *_borrowed()]
        (self._packages / "dependencies.pth").write_text("\n".join(dict.fromkeys(borrowed)) + "\n")
        self.anew()

    def anew(self) -> None:
        """Install the wheel again, without what earlier runs left in it or in the user's folders."""
        shutil.rmtree(self._packages / "kwsniff", ignore_errors=True)
        shutil.rmtree(self._home, ignore_errors=True)
        self._home.mkdir()
        (wheel,) = self._folder.glob("*.whl")
        install = [sys.executable, "-m", "pip", "--python", str(self._python), "install", "--quiet"]
        options = ["--no-deps", "--force-reinstall", "--no-index", "--disable-pip-version-check"]
        subprocess.run([*install, *options, str(wheel)], check=True)

    def command(self, *arguments: str) -> list[str]:
        """The command line of `kwsniff ARGUMENTS`."""
        return [str(self._python.with_name("kwsniff")), *arguments]

    def run(self, command: list[str]) -> Run:
        """Measure it, with a home folder of its own."""
        return measured(command, {"HOME": str(self._home), "XDG_CACHE_HOME": str(self._home / ".cache")})


def _borrowed() -> list[str]:
    """Folders that the bench's own environment takes packages from, but for kwsniff's sources."""
    sources = {str(ROOT), ""}
    return [path for path in sys.path if path.endswith("-packages") and path not in sources]
