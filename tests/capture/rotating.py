"""A capture program that rotates its files, real clients, and `kwsniff decode --follow` behind it.

    python -m tests.capture.rotating FOLDER SECONDS WRITER [ARGUMENT ...]

Needs root; works in a network namespace of its own. WRITER runs in FOLDER/rotating while librdkafka clients
talk to librdkafka's mock cluster over loopback, and tcpdump writes FOLDER/whole.pcap beside it.
What is followed goes to FOLDER/followed.jsonl. Prints the brokers' ports.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.bench import namespace
from tests.live.scenario import converse as talk


def main() -> None:
    folder, seconds, writer = Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]
    namespace.enter()
    from confluent_kafka import Producer

    cluster = Producer({"bootstrap.servers": "mock", "test.mock.num.brokers": 2})
    cluster.list_topics("orders", timeout=10)
    brokers = list(cluster.list_topics(timeout=10).brokers.values())
    ports = ",".join(str(broker.port) for broker in brokers)
    rotating = folder / "rotating"
    rotating.mkdir()
    whole = ["tcpdump", "-i", "lo", "-U", "-B", "16384", "-w", str(folder / "whole.pcap"), "tcp"]
    follow = [sys.executable, "-m", "kwsniff", "decode", "--follow", "-f", "jsonl", "--port", ports]
    follow += ["-o", str(folder / "followed.jsonl"), str(rotating)]
    running = [
        subprocess.Popen(whole, stderr=subprocess.DEVNULL),
        subprocess.Popen(writer, cwd=rotating, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL),
        subprocess.Popen(follow),
    ]
    try:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline and not (
            (folder / "whole.pcap").exists() and list(rotating.iterdir())
        ):
            time.sleep(0.1)
        time.sleep(0.5)
        talk(",".join(f"{broker.host}:{broker.port}" for broker in brokers), seconds)
        time.sleep(1.5)
    finally:
        for process in running:
            process.send_signal(signal.SIGINT)
            process.wait(20)
            time.sleep(1.0)  # what compresses the last file is no child of ours
    if running[2].returncode:
        raise SystemExit(f"kwsniff ended with {running[2].returncode}")
    print(ports)


if __name__ == "__main__":
    main()
