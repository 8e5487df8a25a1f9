"""The tests of the kernels of bodies once more, with the kernels compiled and every index checked."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from body_machine import Machine

from kwsniff.kernel import texts
from kwsniff.native.mode import COMPILING

HERE = Path(__file__).parent


@pytest.mark.skipif(not COMPILING, reason="interpreted lists check their indexes anyway")
def test_an_index_out_of_bounds_is_an_error_when_bounds_are_checked() -> None:
    machine = Machine()
    with pytest.raises(IndexError):
        texts.mark(machine.t, len(machine.t.texts))
    with pytest.raises(IndexError):
        texts.same_bytes(np.zeros(4, np.uint8), 0, np.zeros(4, np.uint8), 0, 5)


@pytest.mark.slow
@pytest.mark.skipif(COMPILING, reason="this is that run")
def test_compiled_kernels_pass_the_same_tests_with_bounds_checked() -> None:
    chosen = [str(path) for path in [*sorted(HERE.glob("test_*bod*.py")), HERE / "test_texts.py"]]
    environment = os.environ | {
        "KWSNIFF_COMPILING": "1",
        "NUMBA_BOUNDSCHECK": "1",
        "PYTHONPATH": str(HERE.parent),
    }
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-m", "not slow", *chosen],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout[-4000:]
    assert "passed" in run.stdout or "%]" in run.stdout
