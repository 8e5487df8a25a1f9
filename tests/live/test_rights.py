"""What a user without the right to listen is told."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import ROOT

UNPRIVILEGED = ("setpriv", "--bounding-set", "-net_raw", "--inh-caps", "-net_raw")


@pytest.mark.root
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv takes the right away")
def test_the_program_that_runs_is_named_not_the_script_that_starts_it(tmp_path: Path) -> None:
    shim = tmp_path / "python3"
    shim.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    shim.chmod(0o755)
    command = [*UNPRIVILEGED, "python3", "-m", "kwsniff", "live", "-i", "lo", "--duration", "1s"]
    env = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=60)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as running:
        program = os.readlink(f"/proc/{running.pid}/exe")
        running.communicate(b"\n")
    assert done.returncode == 2
    assert f"`setcap cap_net_raw+eip {program}`" in done.stderr
