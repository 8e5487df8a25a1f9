"""Where exchanges are registered, and what most of them need: a server, its clients, a conversation."""

from __future__ import annotations

import contextlib
import shlex
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HOST = "127.0.0.1"
CLIENT, SERVER = True, False
AT_ONCE = 4
CLIENT_SECONDS = 20

Run = Callable[[int, int], None]
Conversation = Callable[[int], Iterable[tuple[bool, bytes]]]
EXCHANGES: dict[str, Run] = {}


def exchange(name: str) -> Callable[[Run], Run]:
    """Register a function of a port and a number of connections under the name of its protocol."""

    def register(run: Run) -> Run:
        assert name not in EXCHANGES, name
        EXCHANGES[name] = run
        return run

    return register


def made(name: str) -> Callable[[Conversation], Conversation]:
    """Register a conversation of our own bytes: (who speaks, what), for each number of a connection."""

    def register(conversation: Conversation) -> Conversation:
        exchange(name)(lambda port, count: converse(port, count, conversation))
        return conversation

    return register


def converse(port: int, count: int, conversation: Conversation) -> None:
    """Have a conversation over real sockets, each message read to its end before the next is sent."""
    with socket.create_server((HOST, port)) as listener:
        for number in range(count):
            with socket.create_connection((HOST, port)) as client, listener.accept()[0] as server:
                for speaker, data in conversation(number):
                    sender, taker = (client, server) if speaker is CLIENT else (server, client)
                    sender.sendall(data)
                    left = len(data)
                    while left:
                        left -= len(taker.recv(left))


def listens(port: int) -> bool:
    """Say whether a process listens, without a connection, which would be recorded too."""
    tables = [Path(f"/proc/net/{name}").read_text().splitlines()[1:] for name in ("tcp", "tcp6")]
    rows = [line.split() for table in tables for line in table]
    return any(row[1].endswith(f":{port:04X}") and row[3] == "0A" for row in rows)


def wait_for(port: int, process: subprocess.Popen[bytes] | None = None, seconds: float = 90) -> None:
    """Wait until somebody listens on `port`; raises RuntimeError when the process ends or time is up."""
    deadline = time.monotonic() + seconds
    while not listens(port):
        if process is not None and process.poll() is not None and process.returncode:
            raise RuntimeError(f"the server ended with status {process.returncode}")
        if time.monotonic() > deadline:
            raise RuntimeError(f"nobody listens on port {port}")
        time.sleep(0.05)


@contextlib.contextmanager
def daemon(
    command: str | Sequence[object], port: int, env: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server until the body is done; it stays in the foreground and listens on `port`."""
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(split(command), stdout=log, stderr=log, env=env, cwd="/")
        try:
            wait_for(port, process)
            time.sleep(0.2)
            yield process
        except Exception:
            log.seek(0)
            print(log.read()[-600:].decode(errors="replace"))
            raise
        finally:
            end(process)


def split(command: str | Sequence[object]) -> list[str]:
    """The words of a command: of a text as a shell would have them."""
    return shlex.split(command) if isinstance(command, str) else list(map(str, command))


def end(process: subprocess.Popen[bytes]) -> None:
    """Ask a process to end, and end it when it does not."""
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """Give a folder that daemons which drop their rights can read and write, too."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o777)
        yield Path(folder)


def each(count: int, job: Callable[[int], object]) -> None:
    """Run `job(number)` for each connection, a few at once. One that fails is no reason to stop."""

    def attempt(number: int) -> Exception | None:
        try:
            job(number)
        except Exception as error:
            return error
        return None

    with ThreadPoolExecutor(AT_ONCE) as pool:
        failed = [error for error in pool.map(attempt, range(count)) if error is not None]
    if len(failed) == count > 0:
        raise failed[0]


def command_each(count: int, command: str | Sequence[object], said: str = "") -> None:
    """Run a client program once for each connection; whether it likes the answers doesn't matter."""

    def client(number: int) -> None:
        words = [word.replace("%N", str(number)) for word in split(command)]
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(
                words, input=said.encode(), capture_output=True, timeout=CLIENT_SECONDS, check=False
            )

    each(count, client)


def dialogue(
    port: int, count: int, lines: Sequence[bytes], greeted: bool = False, patience: float = 1.0
) -> None:
    """Say lines to a real server, each when the answer to the one before has come. %N is the number."""

    def client(number: int) -> None:
        with socket.create_connection((HOST, port), timeout=5) as stream:
            if greeted:
                hear(stream, patience)
            # A server that hangs up has said what it had to say.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                for line in lines:
                    stream.sendall(line.replace(b"%N", str(number).encode()))
                    hear(stream, patience)

    each(count, client)


def served(
    name: str,
    command: str,
    lines: Sequence[bytes],
    settings: str = "",
    greeted: bool = False,
    patience: float = 1.0,
) -> None:
    """Register a server that takes one command and at most one file of settings, and the lines said to it.

    Command and settings are formatted with `host`, `port`, `folder` and, as a path, `settings`.
    """

    def run(port: int, count: int) -> None:
        with scratch() as folder:
            places = {"host": HOST, "port": port, "folder": folder, "settings": folder / "settings"}
            if settings:
                (folder / "settings").write_text(settings.format(**places))
            with daemon(command.format(**places), port):
                dialogue(port, count, lines, greeted, patience)

    exchange(name)(run)


def hear(stream: socket.socket, patience: float = 1.0) -> bytes:
    """Read until the other end has been silent for a moment; `patience` is for its first byte."""
    heard = b""
    stream.settimeout(patience)
    with contextlib.suppress(TimeoutError, ConnectionResetError):
        while data := stream.recv(65536):
            heard += data
            stream.settimeout(0.03)
    stream.settimeout(5)
    return heard
