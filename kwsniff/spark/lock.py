"""One run at a time: a claim beside the results, written by each run that wants to write to them.

Theory of operation. Object storage has no locks, but what was written is listed at once. A run writes a claim
under a name of its own and then lists all claims: if it sees no other, it goes on; if it sees one, it takes
its own back and gives up. Of two runs at least the later one sees the other, so never do both go on; that
both give up is possible, so each tries a few times, after a pause of random length.

A claim is *stale*, and removed, if its process is gone from the machine that we share with it, or if it has
not been renewed for `STALE` seconds, by the clock of the file system. A run that finds its own claim gone was
taken for dead, and must not publish.
"""

from __future__ import annotations

import json
import os
import random
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

from kwsniff.spark.storage import FolderEntry, Place

CLAIMS = "_lock"
RENEW = 15.0
"""Seconds between two renewals of a claim."""
STALE = 120.0
"""Seconds without one after which a claim counts for nothing."""
ATTEMPTS = 3
PAUSE = 0.5
READS = 5
"""Times that a claim is read which is there and can't be read."""


class LockedError(Exception):
    """Another run writes to the same place; the text is one line."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Who claims a place."""

    machine: str
    """The same for processes that see each other's ids."""
    host: str
    pid: int
    began: str
    """When the process began, as its kernel counts, so that its id may be used again."""
    since: str

    @classmethod
    def own(cls) -> Claim:
        """That of this process."""
        since = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"
        return cls(_machine(), socket.gethostname(), os.getpid(), _began(os.getpid()) or "", since)

    def alive(self) -> bool | None:
        """Whether its process is still there; None if that can't be seen from here."""
        if self.machine != _machine():
            return None
        return _began(self.pid) == self.began

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, since {self.since}"


class Lock:
    """The claim of this run on `place`."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._claims = place / CLAIMS
        self._own = self._claims / f"{uuid4().hex}.json"
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._renew, daemon=True)
        self._data = json.dumps(asdict(Claim.own())).encode()

    def take(self) -> None:
        """Claim the place. Raises LockedError, OSError."""
        for attempt in range(ATTEMPTS):
            self._own.replace(self._data)
            other = self._other()
            if other is None:
                self._thread.start()
                return
            self._own.remove()
            if attempt + 1 < ATTEMPTS:
                time.sleep(PAUSE * (1 + random.random()))
        raise LockedError(f"{self._place}: another run writes to it ({other})")

    def held(self) -> None:
        """Make sure that nobody took this run for dead. Raises LockedError, OSError."""
        if self._own.about() is None:
            raise LockedError(f"{self._place}: another run took over, for this one gave no sign of life")

    def release(self) -> None:
        """Take the claim back."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()
        with suppress(OSError):
            self._own.remove()

    def _other(self) -> Claim | None:
        """A claim of somebody else that counts; others are removed."""
        found = list(self._claims.files())
        now = next((each.modified_ns for each in found if each.place == self._own), 0)
        for each in found:
            if each.place == self._own or not each.place.name.endswith(".json"):
                continue
            try:
                claim = _read(each)
            except FileNotFoundError:
                continue  # taken back; what has its name by now is a claim made anew
            if claim is not None and not _stale(each, claim, now):
                return claim
            each.place.remove()
        return None

    def _renew(self) -> None:
        while not self._over.wait(RENEW):
            with suppress(OSError):
                if self._own.about() is not None:
                    self._own.replace(self._data)


@contextmanager
def locked(place: Place) -> Iterator[Lock]:
    """Be the only run that writes to `place`. Raises LockedError, OSError."""
    lock = Lock(place)
    lock.take()
    try:
        yield lock
    finally:
        lock.release()


def _read(entry: FolderEntry) -> Claim | None:
    """None if it is no claim. Raises FileNotFoundError if it was taken back meanwhile, OSError if it can't be
    read time and again."""
    for attempt in range(READS):
        try:
            return Claim(**json.loads(entry.place.read()))
        except (ValueError, TypeError):
            return None
        except FileNotFoundError:
            raise
        except OSError:
            # Taken back while it was read; and as claims are made again, it may be there once more.
            if entry.place.about() is None:
                raise FileNotFoundError(str(entry.place)) from None
            if attempt + 1 == READS:
                raise
    return None


def _stale(entry: FolderEntry, claim: Claim, now_ns: int) -> bool:
    alive = claim.alive()
    if alive is not None:
        return not alive
    return bool(entry.modified_ns and now_ns) and now_ns - entry.modified_ns > STALE * 1e9


def _machine() -> str:
    """Processes with the same value see the same process ids."""
    parts = [socket.gethostname()]
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
    with suppress(OSError):
        parts.append(os.readlink("/proc/self/ns/pid"))
    return " ".join(parts)


def _began(pid: int) -> str | None:
    """When a process began; empty where the system doesn't tell, None if there is no such process."""
    try:
        # The second field is a name in parentheses, which may hold anything.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return "" if not os.path.isdir("/proc/self") and _exists(pid) else None
    return None if fields[0] == "Z" else fields[19]


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
