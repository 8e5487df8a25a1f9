"""`kwsniff pipeline --follow` as a process: killed, stopped, in time, and what it says."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest

from kwsniff.capture.place import Place
from kwsniff.spark import results
from tests.samples import sample
from tests.spark.rotated import rotated
from tests.spark.streams import awaited, begun, come, expected, killed_when, stored


@pytest.mark.costly
def test_a_stream_killed_at_several_places_yields_each_call_once(tmp_path: Path) -> None:
    source, out = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    files = rotated(sample("librdkafka-groups").paths, tmp_path / "all")
    places = [".stream/state/*/share-0001", "data/stream/calls/*/*/batch-000000-*"]
    for number, place in enumerate(places):
        come(files[5 * number : 5 * number + 5], source)
        known = set(out.glob(place))
        looked = lambda place=place, known=known: (p for p in out.glob(place) if p not in known)  # noqa: E731
        killed_when(begun(source, out), looked)
    come(files, source)
    last = begun(source, out, "--end")
    said, errors = last.communicate(timeout=180)
    assert last.returncode == 0, errors
    assert stored(out).equals(expected([source / file.name for file in files]))
    assert said.splitlines()[-1].startswith("2026-11-21 01:31:45  ")


@pytest.mark.costly
def test_sigterm_ends_a_stream_in_order(tmp_path: Path) -> None:
    source, out = tmp_path / "in", tmp_path / "out"
    files = rotated(sample("librdkafka-groups").paths, source)
    process = begun(source, out)
    try:
        awaited(process, lambda: out.glob("manifest.json"))
        process.terminate()
        said, errors = process.communicate(timeout=120)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, errors
    assert "Traceback" not in errors
    assert [line[:19] for line in said.splitlines()][:2] == ["2026-11-21 01:31:25", "2026-11-21 01:31:30"]
    assert f"{len(files)} files read" in errors


@pytest.mark.costly
def test_captures_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    source, out = tmp_path / "in", tmp_path / "out"
    files = rotated(sample("midstream").paths, source, 300)
    (source / "broken.pcap.zst").write_bytes(b"\x28\xb5\x2f\xfd\xff\xff\xff\xff\xff\xff")
    os.utime(source / "broken.pcap.zst", (1_700_000_000, 1_700_000_000))
    process = begun(source, out, "--end")
    _, errors = process.communicate(timeout=180)
    assert process.returncode == 3, errors
    assert [line for line in errors.splitlines() if "broken.pcap.zst" in line] == [
        line for line in errors.splitlines() if line.endswith("; it is passed over")
    ]
    assert f"{source}/broken.pcap.zst: " in errors
    assert stored(out).equals(expected(files))


@pytest.mark.costly
def test_rows_are_there_five_seconds_after_their_file(tmp_path: Path) -> None:
    source, out = tmp_path / "in", tmp_path / "out"
    files = rotated(sample("librdkafka-groups").paths, tmp_path / "all", 60)
    source.mkdir()
    come(files[:2], source)
    process = begun(source, out, "--settle", "0")
    waits = []
    try:
        awaited(process, lambda: out.glob("manifest.json"))
        for number in range(2, 9):
            come(files[number : number + 1], source)
            began = time.monotonic()
            while results.last_record(Place.of(out)).files <= number:
                assert process.poll() is None, process.communicate()
                assert time.monotonic() < began + 60
                time.sleep(0.02)
            waits.append(time.monotonic() - began)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    assert min(waits) < 5, waits  # of several: other processes may hold up any one
