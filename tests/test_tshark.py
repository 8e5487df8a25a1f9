"""The saved view of tshark is what tshark says."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter

import pytest

from tests.samples import names, sample
from tests.test_samples import RAW_TOKENS, our_requests

pytestmark = [
    pytest.mark.tshark,
    pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed"),
]


@pytest.mark.parametrize("name", sorted(set(names()) - RAW_TOKENS - {"rotation"}))
def test_the_installed_tshark_sees_the_same_requests(name: str) -> None:
    recorded = sample(name)
    ports = [part for port in recorded.note["ports"] for part in ("-d", f"tcp.port=={port},kafka")]
    fields = ["frame.number", "kafka.correlation_id", "kafka.request_key", "kafka.request.version"]
    command = ["tshark", "-r", recorded.paths[0], *ports, "-Y", "kafka.request_key", "-T", "fields"]
    command += [part for field in fields for part in ("-e", field)]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    seen: Counter[tuple[int, int, int, int]] = Counter()
    for line in output.splitlines():
        frame, ids, keys, versions = line.split("\t")
        for each in zip(ids.split(","), keys.split(","), versions.split(","), strict=True):
            seen[(int(frame), *(int(value, 0) for value in each))] += 1  # type: ignore[index]
    assert our_requests(recorded) == seen
