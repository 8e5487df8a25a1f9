"""Kernels compiled apart are those that real traffic needs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.samples import CAPTURES

REAL = """
import sys
from kwsniff.config import Config
from kwsniff.engine.bulk import warm
from kwsniff.engine.bulk.bodies import bodies
from kwsniff.engine.bulk.calls import calls
from kwsniff.engine.bulk.streams import follow, regions
from kwsniff.offline import events

assert warm.kernels() == warm.READY
rows = sum(map(len, events(sys.argv[1:], Config(kernels="always"))))
kernels = (follow, regions, bodies, calls)
misses = {each.py_func.__name__: sum(each.stats.cache_misses.values()) for each in kernels}
print(rows > 100, misses)
"""


@pytest.mark.slow
def test_real_traffic_finds_the_kernels_that_were_compiled_apart(tmp_path: Path) -> None:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}

    def run(*arguments: str) -> str:
        command = [sys.executable, *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    assert run("-m", "kwsniff.engine.bulk.rehearsal") == ""
    samples = [str(CAPTURES / name) for name in ("mock-produce.pcapng", "kafka-0.8.pcap", "snaplen-128.pcap")]
    assert run("-c", REAL, *samples) == "True {'follow': 0, 'regions': 0, 'bodies': 0, 'calls': 0}\n"
