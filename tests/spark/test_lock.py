"""Of runs that claim one place, one goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace

import pytest

from kwsniff.capture.place import Place
from kwsniff.spark import version
from kwsniff.spark.version import CLAIMS, Claim, Lock, OutputError, locked


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version, "PAUSE", 0.01)


def test_a_second_claim_is_told_whose_the_first_is(root: str) -> None:
    place = Place.of(root)
    with locked(place), pytest.raises(OutputError) as told:
        Lock(place).take()
    assert str(told.value).startswith(f"{place}: another run writes to it (process {os.getpid()} on ")
    assert list((place / CLAIMS).files()) == []
    with locked(place):
        pass


def test_a_claim_made_anew_while_the_old_one_was_read_is_not_removed(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place.of(root)

    def gone(_: Place) -> bytes:
        raise FileNotFoundError

    with locked(place):
        with monkeypatch.context() as patched:
            patched.setattr(Place, "read", gone)
            other = Lock(place)
            other.take()  # takes the first claim for one that is gone
            other.release()
        with pytest.raises(OutputError):
            Lock(place).take()


def test_of_many_at_once_never_do_two_hold_it(root: str) -> None:
    place = Place.of(root)
    holding, most, held = [0], [0], [0]

    def tried(_: int) -> None:
        mine = Lock(place)
        try:
            mine.take()
        except OutputError:
            return
        holding[0] += 1
        most[0] = max(most[0], holding[0])
        held[0] += 1
        time.sleep(0.02)
        holding[0] -= 1
        mine.release()

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(tried, range(12)))
    assert most[0] <= 1
    with locked(place):
        pass


def test_the_claim_of_a_process_that_was_killed_counts_for_nothing(root: str) -> None:
    place = Place.of(root)
    code = (
        "import os, sys, signal; from kwsniff.spark.version import Lock\n"
        "from kwsniff.capture.place import Place;"
        "Lock(Place(sys.argv[1])).take(); os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", code, root], check=False)
    assert len(list((place / CLAIMS).files())) == 1
    with locked(place):
        assert len(list((place / CLAIMS).files())) == 1


def test_a_claim_of_another_machine_counts_while_it_is_renewed(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place.of(root)
    elsewhere = replace(Claim.own(), machine="another", host="far", pid=7)
    claim = place / CLAIMS / "far.json"
    claim.replace(json.dumps(asdict(elsewhere)).encode())
    with pytest.raises(OutputError, match="process 7 on far, since "):
        Lock(place).take()
    monkeypatch.setattr(version, "STALE", 1.0)
    time.sleep(2.5)  # the clock of object storage has whole seconds
    with locked(place):
        assert claim.about() is None


@pytest.mark.parametrize(("failures", "readable"), [(version.READS - 1, True), (version.READS, False)])
def test_a_claim_that_came_back_while_it_was_read_is_read_again(
    root: str, monkeypatch: pytest.MonkeyPatch, failures: int, readable: bool
) -> None:
    """Object storage fails a read whose object is removed, and claims are made again under their names."""
    place = Place.of(root)
    read, left = Place.read, [failures]

    def interrupted(at: Place) -> bytes:
        left[0] -= 1
        if left[0] >= 0:
            raise OSError("failed to flush the response")
        return read(at)

    with locked(place):
        monkeypatch.setattr(Place, "read", interrupted)
        with pytest.raises(OutputError if readable else OSError, match=None if readable else "flush"):
            Lock(place).take()
        left[0] = 0


def test_a_run_that_was_taken_for_dead_does_not_publish(root: str) -> None:
    place = Place.of(root)
    mine = Lock(place)
    mine.take()
    mine.held()
    for each in (place / CLAIMS).files():
        each.place.remove()
    with pytest.raises(OutputError, match="took over"):
        mine.held()
    mine.release()


def test_a_process_id_that_is_used_again_is_another_process() -> None:
    mine = Claim.own()
    assert mine.alive() is True
    assert replace(mine, began="1").alive() is False
    assert replace(mine, machine="another").alive() is None
