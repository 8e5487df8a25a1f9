"""Real clients, tcpdump and `kwsniff live` side by side, in a network namespace of their own.

    python scenario.py FOLDER SECONDS [ARGUMENT of kwsniff live ...]

Needs root. A librdkafka producer and consumer talk to librdkafka's mock cluster over loopback, while tcpdump
writes FOLDER/tcpdump.pcap and `kwsniff live` writes FOLDER/live.out and FOLDER/live.err. Prints what came of
it as JSON.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.bench import namespace


def main() -> None:
    folder, seconds, arguments = Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]
    namespace.enter()
    from confluent_kafka import Producer

    cluster = Producer({"bootstrap.servers": "mock", "test.mock.num.brokers": 2})
    cluster.list_topics("orders", timeout=10)
    brokers = list(cluster.list_topics(timeout=10).brokers.values())
    ports = ",".join(str(broker.port) for broker in brokers)
    arguments = [each.replace("PORTS", ports) for each in arguments]
    with (folder / "live.out").open("wb") as out, (folder / "live.err").open("wb") as err:
        sniffer = subprocess.Popen(
            ["tcpdump", "-i", "lo", "-U", "--nano", "-B", "16384", "-w", str(folder / "tcpdump.pcap"), "tcp"],
            stderr=subprocess.PIPE,
        )
        live = subprocess.Popen([sys.executable, "-m", "kwsniff", "live", *arguments], stdout=out, stderr=err)
        try:
            _listening(folder / "live.err")
            _listening(folder / "tcpdump.pcap")
            with _watched(live.pid) as memory:
                told = _talk(",".join(f"{broker.host}:{broker.port}" for broker in brokers), seconds)
            time.sleep(1.0)
            ended = _end(live)
        finally:
            for process in (live, sniffer):
                if process.poll() is None:
                    process.send_signal(signal.SIGINT)
                    process.wait(20)
    print(json.dumps({"ports": ports, "exit": live.returncode, "ended_in": ended, "memory": memory, **told}))


@contextmanager
def _watched(pid: int) -> Iterator[list[int]]:
    """Resident memory of a process, in KiB, every ten seconds and at the end."""
    found: list[int] = []
    over = threading.Event()

    def look() -> None:
        while not over.wait(10):
            found.append(_resident(pid))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    yield found
    over.set()
    thread.join()
    found.append(_resident(pid))


def _resident(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in text.splitlines() if line.startswith("VmRSS:")), 0)


def _listening(path: Path) -> None:
    for _ in range(200):
        if path.exists() and path.stat().st_size:
            return
        time.sleep(0.1)
    raise SystemExit(f"{path.name} stays empty")


def _talk(bootstrap: str, seconds: float) -> dict[str, Any]:
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


def _end(process: subprocess.Popen[bytes]) -> float:
    """End the live session as a user does; seconds that it took."""
    if process.poll() is None:
        asked = time.monotonic()
        process.send_signal(signal.SIGINT)
        process.wait(20)
        return time.monotonic() - asked
    return 0.0


if __name__ == "__main__":
    main()
