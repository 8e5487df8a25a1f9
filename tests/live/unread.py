"""`kwsniff live` whose standard output nobody reads, and Kafka calls in a network of its own.

    python unread.py FOLDER CALLS RATE BYTES [ARGUMENT of kwsniff live ...]

Needs root. A client sends CALLS requests of BYTES over loopback, RATE of them a second, each answered; then
SIGTERM ends the session. Prints as JSON how long that took; FOLDER/live.err holds what the session said,
FOLDER/live.out a pipe's worth of what it told.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from struct import pack, unpack

from tests.bench import namespace
from tests.live.scenario import _listening
from tests.playbook import kafka_request, kafka_response


def main() -> None:
    folder, arguments = Path(sys.argv[1]), sys.argv[5:]
    namespace.enter()
    with (folder / "live.err").open("wb") as err:
        live = subprocess.Popen(
            [sys.executable, "-m", "kwsniff", "live", "-i", "lo", *arguments],
            stdout=subprocess.PIPE,
            stderr=err,
        )
        assert live.stdout is not None
        try:
            _listening(folder / "live.err")
            began = time.monotonic()
            _talk(*map(int, sys.argv[2:5]))
            sent = time.monotonic()
            time.sleep(1.0)
            asked = time.monotonic()
            live.send_signal(signal.SIGTERM)
            live.wait(20)
            ended = time.monotonic()
            os.set_blocking(live.stdout.fileno(), False)
            (folder / "live.out").write_bytes(live.stdout.read() or b"")
        finally:
            live.kill()
    print(json.dumps({"exit": live.returncode, "ended_in": ended - asked, "talked_for": sent - began}))


def _talk(calls: int, rate: int, size: int) -> None:
    listener = socket.create_server(("127.0.0.1", 9092))
    broker = threading.Thread(target=_answer, args=(listener,))
    broker.start()
    # Produce v0, acks 1: one topic, one partition, and bytes for a record set (protocol guide).
    body = pack(">hii", 1, 1000, 1) + pack(">h6si", 6, b"orders", 1) + pack(">ii", 0, size) + bytes(size)
    with socket.create_connection(("127.0.0.1", 9092)) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        began = time.monotonic()
        for number in range(calls):
            time.sleep(max(began + number / rate - time.monotonic(), 0) if number % 20 == 0 else 0)
            client.sendall(kafka_request(0, 0, number, body))
            _exactly(client, unpack(">i", _exactly(client, 4))[0])
    broker.join()
    listener.close()


def _answer(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    body = pack(">i", 1) + pack(">h6si", 6, b"orders", 1) + pack(">ihq", 0, 0, 0)
    with connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while head := _exactly(connection, 4):
            asked = _exactly(connection, unpack(">i", head)[0])
            connection.sendall(kafka_response(unpack(">i", asked[4:8])[0], body))


def _exactly(connection: socket.socket, size: int) -> bytes:
    """So many bytes; none if the other end has closed."""
    data = bytearray()
    while len(data) < size and (more := connection.recv(size - len(data))):
        data += more
    return bytes(data)


if __name__ == "__main__":
    main()
