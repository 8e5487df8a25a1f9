"""Key logs: the secrets that a TLS endpoint wrote down (RFC 9850, the format of $SSLKEYLOGFILE).

A line is a label, the client random of a connection and a secret, both in hex. Secrets are only ever added;
where there are too many, the client randoms that came first go first. `version` counts what was added, so
that whoever lacks a secret knows when to look again.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path

from kwsniff.tls.hellos import session_key

MAX_CLIENT_RANDOMS = 65_536
"""Connections whose secrets are kept, about 400 bytes each."""
MAX_SECRETS = 32
"""Secrets kept of one connection; a handshake has five."""
MAX_SESSIONS = 65_536
"""Session ids and tickets of TLS 1.2 that are remembered, about 250 bytes each."""
MAX_LINE = 1024
READ_BYTES = 1 << 20
SESSION_ID, MASTER_KEY = b"Session-ID:", b"Master-Key:"
RANDOM_BYTES = 32
MASTER_BYTES = 48
LABELS = (
    b"CLIENT_RANDOM",
    b"CLIENT_EARLY_TRAFFIC_SECRET",
    b"CLIENT_HANDSHAKE_TRAFFIC_SECRET",
    b"SERVER_HANDSHAKE_TRAFFIC_SECRET",
    b"CLIENT_TRAFFIC_SECRET_0",
    b"SERVER_TRAFFIC_SECRET_0",
    b"RSA",
)
"""Those that open records; lines with another one (EXPORTER_SECRET, ECH_SECRET …) are taken and not kept."""
NUMBERS = {label: number for number, label in enumerate(LABELS)}
NAMES = tuple(label.decode() for label in LABELS)
RSA_ID_BYTES = 8
"""NSS's lines for RSA key exchange have so much of the encrypted premaster secret, no random."""


class KeyLog:
    """Secrets by client random: label -> secrets (several secrets may stand for one label)."""

    def __init__(self) -> None:
        self.skipped = 0
        """Lines that are no lines of a key log; comments and blank ones are not counted."""
        self.version = 0
        """Goes up with each secret that is new."""
        self._secrets: OrderedDict[bytes, bytes] = OrderedDict()
        """By client random, one after the other: number of the label, length, secret."""
        self._sessions: OrderedDict[bytes, bytes] = OrderedDict()
        self._partial = b""
        self._discarding = False

    def add(self, text: bytes) -> int:
        """Take lines of a key log; a last line without its end is kept until the rest comes.

        Returns how many lines were taken. Never raises: what is no line of a key log is counted in `skipped`.
        """
        *lines, partial = (self._partial + text).replace(b"\r", b"\n").split(b"\n")
        if self._discarding and lines:
            del lines[0]
            self._discarding = False
        if len(partial) > MAX_LINE:
            self.skipped += not self._discarding
            self._discarding, partial = True, b""
        self._partial = partial
        return sum(map(self._add_line, lines))

    def end(self) -> int:
        """Take a last line that lacks its end, where the log ends for certain. Returns the lines taken."""
        return self.add(b"\n") if self._partial else 0

    def refresh(self) -> bool:
        """Whether anything new came. What was only told does not grow by itself."""
        return False

    def find(self, client_random: bytes) -> Mapping[str, Sequence[bytes]] | None:
        """The secrets of a connection by their label; None if the log does not have it."""
        packed = self._secrets.get(client_random)
        if packed is None:
            return None
        found: dict[str, list[bytes]] = {}
        at = 0
        while at < len(packed):
            end = at + 2 + packed[at + 1]
            found.setdefault(NAMES[packed[at]], []).append(packed[at + 2 : end])
            at = end
        return found

    def recent(self, count: int) -> list[bytes]:
        """The client randoms that were told of last, the last one first."""
        return [each for each in islice(reversed(self._secrets), count) if len(each) == RANDOM_BYTES]

    def remember(self, session: bytes, client_random: bytes) -> None:
        """Note which connection a session id or a ticket of TLS 1.2 comes from."""
        _put(self._sessions, session, client_random, MAX_SESSIONS)

    def recall(self, session: bytes) -> bytes | None:
        """The client random of the connection that a session id or a ticket comes from."""
        return self._sessions.get(session)

    def learn(self, label: str, client_random: bytes, secret: bytes) -> None:
        """Keep a secret that no line told, for instance one that was derived."""
        self._keep(NUMBERS[label.encode()], client_random, secret)

    def _add_line(self, line: bytes) -> bool:
        words = line.split()
        if not words or words[0].startswith(b"#"):
            return False
        if len(words) == 3 and words[1].startswith(SESSION_ID):
            return self._add_session(words[1], words[2])
        try:
            label, name, secret = words
            taken = self._take(label, bytes.fromhex(name.decode()), bytes.fromhex(secret.decode()))
        except ValueError:
            taken = False
        self.skipped += not taken
        return taken

    def _add_session(self, name: bytes, secret: bytes) -> bool:
        """Take the master secret of a session of TLS 1.2 that is named by its id, as agents for Java do:
        `RSA Session-ID:… Master-Key:…`. It stands under the id, as if that were a client random."""
        try:
            session = bytes.fromhex(name.removeprefix(SESSION_ID).decode())
            master = bytes.fromhex(secret.removeprefix(MASTER_KEY).decode())
        except ValueError:
            session = master = b""
        if len(session) != RANDOM_BYTES or len(master) != MASTER_BYTES:
            self.skipped += 1
            return False
        self._keep(NUMBERS[b"CLIENT_RANDOM"], session, master)
        self.remember(session_key(session), session)
        return True

    def _take(self, label: bytes, name: bytes, secret: bytes) -> bool:
        """Whether label, name and secret fit each other; secrets are hash values or 48 bytes (RFC 9850)."""
        if len(name) != (RSA_ID_BYTES if label == b"RSA" else RANDOM_BYTES):
            return False
        number = NUMBERS.get(label)
        if number is None:
            return label.replace(b"_", b"").isalnum()
        if len(secret) not in ((MASTER_BYTES,) if label in (b"CLIENT_RANDOM", b"RSA") else (32, 48)):
            return False
        self._keep(number, name, secret)
        return True

    def _keep(self, number: int, name: bytes, secret: bytes) -> None:
        packed = self._secrets.get(name, b"")
        entry = bytes((number, len(secret))) + secret
        if entry in packed or len(packed) >= MAX_SECRETS * len(entry):
            return
        _put(self._secrets, name, packed + entry, MAX_CLIENT_RANDOMS)
        self.version += 1


class GrowingKeyLog(KeyLog):
    """The key log in a file that may still grow, be truncated or be replaced.

    Raises:
        OSError: the file cannot be read; with `may_come` one that does not exist is read when it does.
    """

    def __init__(self, path: str | os.PathLike[str], may_come: bool = False) -> None:
        super().__init__()
        self.path = Path(path)
        self._state: tuple[int, ...] = ()
        self._read = 0
        self._before = b""
        """The last bytes that were read: a file in which they are no longer in their place is another one."""
        try:
            self._refresh()
        except FileNotFoundError:
            if not may_come:
                raise

    def refresh(self) -> bool:
        """Read what was appended. Returns whether any secret is new; costs a `stat` if nothing changed.

        A file that is away or cannot be read for the moment changes nothing.
        """
        try:
            return self._refresh()
        except OSError:
            return False

    def _refresh(self) -> bool:
        stat = os.stat(self.path)
        state = (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns)
        if state == self._state:
            return False
        version = self.version
        with self.path.open("rb") as file:
            start = self._read - len(self._before)
            file.seek(start)
            if state[:2] != self._state[:2] or file.read(len(self._before)) != self._before:
                self._partial, self._discarding, self._before = b"", False, b""
                file.seek(0)
                self._read = 0
            while block := file.read(READ_BYTES):
                self.add(block)
                self._read += len(block)
                self._before = (self._before + block)[-MAX_LINE:]
        self._state = state
        return self.version > version


def _put(table: OrderedDict[bytes, bytes], key: bytes, value: bytes, limit: int) -> None:
    table[key] = value
    if len(table) > limit:
        table.popitem(last=False)
