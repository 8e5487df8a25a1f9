"""TLS connections on loopback between Debian's openssl or Python's ssl, with what each direction carried.

A relay stands between client and server and keeps the bytes of both directions, so no packet is captured.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kwsniff.tls.decrypter import Session
from kwsniff.tls.keylog import KeyLog

DEADLINE = 20.0
"""Seconds until a test that waits for a peer gives up."""
CLIENT, SERVER = 0, 1

Records = list[tuple[int, bytes]]
"""Side and record, in the order in which the relay saw them."""


@dataclass
class Recording:
    """What a connection carried."""

    chunks: list[tuple[int, bytes]] = field(default_factory=list, repr=False)
    keys: bytes = field(default=b"", repr=False)
    """The key log."""

    def records(self) -> Records:
        """Whole records; a record comes when its last byte did."""
        buffers, found = (bytearray(), bytearray()), []
        for side, chunk in self.chunks:
            buffer = buffers[side]
            buffer += chunk
            while len(buffer) >= 5 and len(buffer) >= (size := 5 + int.from_bytes(buffer[3:5], "big")):
                found.append((side, bytes(buffer[:size])))
                del buffer[:size]
        assert buffers == (b"", b"")
        return found

    def key_log(self) -> KeyLog:
        log = KeyLog()
        log.add(self.keys)
        return log


def opened(records: Records, keys: KeyLog | None) -> tuple[Session, tuple[bytes, bytes]]:
    """A session that took all records, and what it read of each side."""
    session, read = Session(keys), (bytearray(), bytearray())
    for side, record in records:
        read[side].extend(session.take(side, record) or b"")
    return session, (bytes(read[0]), bytes(read[1]))


class Relay:
    """Takes connections one after the other and passes them on to a port, recording each."""

    def __init__(self, port: int) -> None:
        self.recordings: list[Recording] = []
        self._server = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                recording = Recording()
                self.recordings.append(recording)
                with client, socket.create_connection(("127.0.0.1", self._server), DEADLINE) as server:
                    self._pass(recording, (client, server))

    def _pass(self, recording: Recording, ends: Sequence[socket.socket]) -> None:
        open_ends = list(ends)
        while open_ends:
            ready = select.select(open_ends, [], [], DEADLINE)[0]
            if not ready:
                return
            for end in ready:
                side = ends.index(end)
                try:
                    chunk = end.recv(65536)
                    ends[1 - side].sendall(chunk)
                except OSError:
                    return
                if chunk:
                    recording.chunks.append((side, chunk))
                else:
                    open_ends.remove(end)
                    with contextlib.suppress(OSError):
                        ends[1 - side].shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(DEADLINE)


def certificate(folder: Path, name: str, kind: str) -> tuple[Path, Path]:
    """A self-signed certificate and its key, made by openssl: `kind` is rsa, ec or dsa."""
    paths = folder / f"{name}.pem", folder / f"{name}.key"
    if not paths[1].exists():
        key = {"rsa": ["rsa:2048"], "ec": ["ec", "-pkeyopt", "ec_paramgen_curve:P-256"]}.get(kind)
        if key is None:
            parameters = folder / "dsa.param"
            openssl("genpkey", "-genparam", "-algorithm", "DSA", "-pkeyopt", "dsa_paramgen_bits:2048",
                    "-pkeyopt", "dsa_paramgen_q_bits:256", "-out", str(parameters))  # fmt: skip
            key = [f"param:{parameters}"]
        openssl("req", "-x509", "-newkey", *key, "-nodes", "-subj", f"/O=Tests/CN={name}", "-days", "30",
                "-keyout", str(paths[1]), "-out", str(paths[0]))  # fmt: skip
    return paths


def openssl(*words: str) -> str:
    run = subprocess.run(["openssl", *words], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    return run.stdout


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


class Peer:
    """`openssl s_server` or `openssl s_client`, with what it printed."""

    def __init__(self, *words: str) -> None:
        self._process = subprocess.Popen(
            ["openssl", *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        self.output = bytearray()
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout
        while block := self._process.stdout.read1(65536):  # type: ignore[attr-defined]
            self.output += block

    def say(self, text: bytes) -> None:
        assert self._process.stdin
        self._process.stdin.write(text)
        self._process.stdin.flush()

    def wait_for(self, text: bytes, times: int = 1) -> None:
        end = time.monotonic() + DEADLINE
        while self.output.count(text) < times:
            if time.monotonic() > end or (self._process.poll() is not None and not self._thread.is_alive()):
                raise AssertionError(f"{text!r} did not come: {bytes(self.output[-2000:])!r}")
            time.sleep(0.005)

    def ended(self) -> None:
        """Wait until it ends by itself."""
        self._process.wait(DEADLINE)

    def close(self) -> None:
        assert self._process.stdin
        assert self._process.stdout
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self._process.terminate()
        self._process.wait(DEADLINE)
        self._thread.join(DEADLINE)
        self._process.stdout.close()


@contextlib.contextmanager
def conversation(
    server: Sequence[str], client: Sequence[str], keys: Path
) -> Iterator[tuple[Peer, Peer, Recording]]:
    """A client of openssl that is connected to a server of openssl; the client writes the key log."""
    port = free_port()
    peers, relay = [Peer("s_server", "-port", str(port), *server)], None
    try:
        peers[0].wait_for(b"ACCEPT")
        relay = Relay(port)
        words = ["-connect", f"127.0.0.1:{relay.port}", "-keylogfile", str(keys)]
        peers.append(Peer("s_client", *words, *client))
        peers[1].wait_for(b"SSL handshake has read")
        end = time.monotonic() + DEADLINE
        while not relay.recordings and time.monotonic() < end:
            time.sleep(0.005)
        recording = relay.recordings[0]
        yield peers[0], peers[1], recording
    finally:
        for peer in reversed(peers):
            peer.close()
        if relay:
            relay.close()
    recording.keys = keys.read_bytes()


@contextlib.contextmanager
def echo(context: ssl.SSLContext, greeting: bytes = b"") -> Iterator[Relay]:
    """A server of Python's ssl behind a relay: says `greeting` and sends back what it is sent."""
    listener = socket.create_server(("127.0.0.1", 0))

    def run() -> None:
        with contextlib.suppress(OSError):
            while True:
                plain, _ = listener.accept()
                plain.settimeout(DEADLINE)
                with contextlib.suppress(ssl.SSLError, OSError), context.wrap_socket(plain, True) as end:
                    end.sendall(greeting)
                    while data := end.recv(65536):
                        end.sendall(data)
                    end.unwrap()

    thread = threading.Thread(target=run)
    thread.start()
    relay = Relay(listener.getsockname()[1])
    try:
        yield relay
    finally:
        relay.close()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(DEADLINE)


def receive(end: ssl.SSLSocket, count: int) -> None:
    while count:
        data = end.recv(count)
        assert data, "closed by the server"
        count -= len(data)


def ask(
    relay: Relay,
    context: ssl.SSLContext,
    messages: Sequence[bytes],
    session: ssl.SSLSession | None = None,
    greeting: bytes = b"",
) -> ssl.SSLSession | None:
    """Connect to an echoing server and have each message sent back. Returns the session to resume."""
    with (
        socket.create_connection(("127.0.0.1", relay.port), DEADLINE) as plain,
        context.wrap_socket(plain, server_hostname="broker.example", session=session) as end,
    ):
        receive(end, len(greeting))
        for message in messages:
            end.sendall(message)
            receive(end, len(message))
        kept = end.session
        end.unwrap()
    return kept
