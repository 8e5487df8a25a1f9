"""`kwsniff live` beside what really happens, in a network namespace of its own. Needs root.

    python -m tests.live.scenario talk FOLDER SECONDS [ARGUMENT of kwsniff live ...]
    python -m tests.live.scenario flood FOLDER PACKETS [ARGUMENT ...]
    python -m tests.live.scenario unread FOLDER CALLS RATE BYTES [ARGUMENT ...]

talk: a librdkafka producer and consumer talk to librdkafka's mock cluster over loopback, while tcpdump writes
FOLDER/tcpdump.pcap. flood: PACKETS datagrams come while the session is stopped (SIGSTOP), half of them again
once it goes on. unread: a client sends CALLS requests of BYTES, RATE of them a second, each answered, and
nobody reads what the session tells; then SIGTERM ends it.

The session writes FOLDER/live.out and FOLDER/live.err. Prints what came of it as JSON.
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
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from struct import pack, unpack
from typing import IO, Any

from tests.bench import namespace
from tests.playbook import kafka_request, kafka_response

FLOOD_PORT = 27877


@contextmanager
def session(folder: Path, out: int | IO[bytes], *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A live session that listens; what it says is in FOLDER/live.err."""
    with (folder / "live.err").open("wb") as err:
        live = subprocess.Popen([sys.executable, "-m", "kwsniff", "live", *arguments], stdout=out, stderr=err)
        try:
            listening(folder / "live.err")
            yield live
        finally:
            live.kill()
            live.wait()


def listening(path: Path) -> None:
    for _ in range(200):
        if path.exists() and path.stat().st_size:
            return
        time.sleep(0.1)
    raise SystemExit(f"{path.name} stays empty")


def end(process: subprocess.Popen[bytes], how: signal.Signals = signal.SIGINT) -> float:
    """End a process as a user does; seconds that it took."""
    if process.poll() is not None:
        return 0.0
    asked = time.monotonic()
    process.send_signal(how)
    process.wait(20)
    return time.monotonic() - asked


def talk(folder: Path, seconds: str, *arguments: str) -> dict[str, Any]:
    from confluent_kafka import Producer

    cluster = Producer({"bootstrap.servers": "mock", "test.mock.num.brokers": 2})
    cluster.list_topics("orders", timeout=10)
    brokers = list(cluster.list_topics(timeout=10).brokers.values())
    ports = ",".join(str(broker.port) for broker in brokers)
    arguments = tuple(each.replace("PORTS", ports) for each in arguments)
    recorded = folder / "tcpdump.pcap"
    sniffer = subprocess.Popen(
        ["tcpdump", "-i", "lo", "-U", "--nano", "-B", "16384", "-w", str(recorded), "tcp"],
        stderr=subprocess.DEVNULL,
    )
    try:
        with (folder / "live.out").open("wb") as out, session(folder, out, *arguments) as live:
            listening(recorded)
            told = converse(",".join(f"{broker.host}:{broker.port}" for broker in brokers), float(seconds))
            time.sleep(1.0)
            ended = end(live)
    finally:
        end(sniffer)
    return {"ports": ports, "exit": live.returncode, "ended_in": ended, **told}


def converse(bootstrap: str, seconds: float) -> dict[str, Any]:
    from confluent_kafka import Consumer, Producer

    producer = Producer({"bootstrap.servers": bootstrap, "client.id": "till", "linger.ms": 5})
    consumer = Consumer({"bootstrap.servers": bootstrap, "client.id": "ledger", "group.id": "books",
                         "auto.offset.reset": "earliest", "fetch.wait.max.ms": 100})  # fmt: skip
    consumer.subscribe(["orders"])
    sent = received = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for _ in range(20):
            producer.produce("orders", os.urandom(100))
            sent += 1
        producer.poll(0)
        received += len(consumer.consume(100, timeout=0.02))
    producer.flush(10)
    consumer.close()
    return {"sent": sent, "received": received}


def flood(folder: Path, packets: str, *arguments: str) -> dict[str, Any]:
    count, wanted = int(packets), f"udp dst port {FLOOD_PORT}"
    with session(folder, subprocess.DEVNULL, "--filter", wanted, *arguments) as live:
        live.send_signal(signal.SIGSTOP)
        send(count)
        live.send_signal(signal.SIGCONT)
        time.sleep(2.0)
        send(count // 2)
        time.sleep(2.0)
        end(live)
    return {"sent": count + count // 2, "exit": live.returncode}


def send(count: int) -> None:
    udp = socket.AF_INET, socket.SOCK_DGRAM
    with socket.socket(*udp) as receiver, socket.socket(*udp) as sender:
        receiver.bind(("127.0.0.1", FLOOD_PORT))
        for number in range(count):
            sender.sendto(bytes(200), ("127.0.0.1", FLOOD_PORT))
            if not number % 200:
                time.sleep(0.01)


def unread(folder: Path, calls: str, rate: str, size: str, *arguments: str) -> dict[str, Any]:
    with session(folder, subprocess.PIPE, "-i", "lo", *arguments) as live:
        call(int(calls), int(rate), int(size))
        time.sleep(1.0)
        ended = end(live, signal.SIGTERM)
    return {"exit": live.returncode, "ended_in": ended}


def call(calls: int, rate: int, size: int) -> None:
    listener = socket.create_server(("127.0.0.1", 9092))
    broker = threading.Thread(target=answer, args=(listener,))
    broker.start()
    # Produce v0, acks 1: one topic, one partition, and bytes for a record set (protocol guide).
    body = pack(">hii", 1, 1000, 1) + pack(">h6si", 6, b"orders", 1) + pack(">ii", 0, size) + bytes(size)
    with socket.create_connection(("127.0.0.1", 9092)) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        began = time.monotonic()
        for number in range(calls):
            time.sleep(max(began + number / rate - time.monotonic(), 0) if number % 20 == 0 else 0)
            client.sendall(kafka_request(0, 0, number, body))
            exactly(client, unpack(">i", exactly(client, 4))[0])
    broker.join()
    listener.close()


def answer(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    body = pack(">i", 1) + pack(">h6si", 6, b"orders", 1) + pack(">ihq", 0, 0, 0)
    with connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while head := exactly(connection, 4):
            asked = exactly(connection, unpack(">i", head)[0])
            connection.sendall(kafka_response(unpack(">i", asked[4:8])[0], body))


def exactly(connection: socket.socket, size: int) -> bytes:
    """So many bytes; none if the other end has closed."""
    data = bytearray()
    while len(data) < size and (more := connection.recv(size - len(data))):
        data += more
    return bytes(data)


def main() -> None:
    what, folder, *arguments = sys.argv[1:]
    namespace.enter()
    print(json.dumps({"talk": talk, "flood": flood, "unread": unread}[what](Path(folder), *arguments)))


if __name__ == "__main__":
    main()
