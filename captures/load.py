"""Record each client library under load over TLS: `sudo python3 captures/load.py --out FOLDER [LIBRARY ...]`.

Beside a member of a group that reads all the time, the library produces in three ways and asks for metadata,
with pauses between. The secrets of all connections are the broker's. With --delay each packet takes so long
from the client to the broker and back, and both ends are captured: clients on 9193, the broker on 9093.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from queue import Queue

from record import set_segments
from recording import capturing
from recording.encrypted import SSL, Encrypted, keep
from recording.environments import CLIENTS, Environment

AWAY = 9193
LIBRARIES = ("librdkafka", "kafka-python", "aiokafka", "java", "kafkajs", "franz-go", "sarama")
TURNS = (("small", 6), ("big", 4), ("none", 3), ("admin", 4))
PAUSE = 2.5


@dataclass(frozen=True)
class Loaded(Encrypted):
    """A broker of one version of TLS."""

    version: str = "TLSv1.3"
    away: bool = False

    def settings(self, certificates: Path) -> dict[str, str]:
        made = {**super().settings(certificates), "ssl.enabled.protocols": self.version}
        if self.away:
            made["advertised.listeners"] = f"PLAINTEXT://127.0.0.1:9092,SSL://127.0.0.1:{AWAY}"
        return made


def relay(delay: float) -> None:
    """Carry bytes between AWAY and the broker, each way after so many seconds."""

    def pump(source: socket.socket, target: socket.socket) -> None:
        queue: Queue[tuple[float, bytes]] = Queue()
        threading.Thread(target=late, args=(queue, target), daemon=True).start()
        data = b"-"
        while data:
            try:
                data = source.recv(65536)
            except OSError:
                data = b""
            queue.put((time.monotonic() + delay, data))

    def late(queue: Queue[tuple[float, bytes]], target: socket.socket) -> None:
        data = b"-"
        while data:
            at, data = queue.get()
            time.sleep(max(0, at - time.monotonic()))
            try:
                target.sendall(data) if data else target.shutdown(socket.SHUT_WR)
            except OSError:
                return

    def serve() -> None:
        listener = socket.create_server(("127.0.0.1", AWAY))
        while True:
            client, _ = listener.accept()
            broker = socket.create_connection(("127.0.0.1", SSL))
            for each in (client, broker):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for pair in ((client, broker), (broker, client)):
                threading.Thread(target=pump, args=pair, daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    time.sleep(0.2)


def command(env: Environment, library: str, role: str, seconds: int) -> list[str]:
    """How a library is started in one role."""
    rest = [role, str(seconds)]
    if library == "java":
        return env.java("kafka-4.4", str(CLIENTS / "kafka-4.4" / "Load.java"), *rest)
    if library == "kafkajs":
        return ["node", str(CLIENTS / "load_kafkajs.js"), *rest]
    if library in ("franz-go", "sarama"):
        return [env.go_program("load"), library, *rest]
    return [str(env.python), str(CLIENTS / "load_client.py"), library, *rest]


def record(env: Environment, library: str, options: argparse.Namespace) -> None:
    """One capture with its key log."""
    name = f"{library}{options.suffix}"
    run = env.work / "run" / f"load-{name}"
    run.mkdir(parents=True, exist_ok=True)
    path = options.out / f"{name}.pcapng"
    ports = f"tcp port {SSL}" + (f" or tcp port {AWAY}" if options.delay else "")
    capture = ["dumpcap", "-i", "lo", "-B", "64", "-q", "-w", str(path), "-f", ports]
    start = Loaded(agent=True, version=options.version, away=bool(options.delay))
    with start(env, run) as broker:
        bootstrap = f"127.0.0.1:{AWAY}" if options.delay else broker.bootstrap
        variables = {
            **os.environ,
            **broker.extra,
            "BOOTSTRAP": bootstrap,
            "NODE_PATH": str(env.node_modules),
            "KAFKAJS_NO_PARTITIONER_WARNING": "1",
        }
        with (run / "log").open("wb") as log:

            def begin(role: str, seconds: int) -> subprocess.Popen[bytes]:
                return subprocess.Popen(
                    command(env, library, role, seconds), env=variables, stdout=log, stderr=log
                )

            begin("small", 1).wait(60)  # makes the topic
            with capturing.capturing(capture, run / "capture.log"):
                reader = begin("read", int(sum(seconds for _, seconds in TURNS) + PAUSE * (len(TURNS) + 2)))
                time.sleep(2 * PAUSE)
                for role, seconds in TURNS:
                    status = begin(role, seconds).wait(60)
                    print(name, role, status, flush=True)
                    time.sleep(PAUSE)
                reader.wait(60)
        keep(broker.keys, path.with_suffix(".keys"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=LIBRARIES, metavar="LIBRARY")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("build/captures"))
    parser.add_argument("--version", default="TLSv1.3")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds, each way")
    parser.add_argument("--suffix", default="")
    parser.add_argument("--inside", action="store_true")
    options = parser.parse_args()
    if not options.inside:
        return subprocess.run(
            ["unshare", "--net", sys.executable, *sys.argv, "--inside"], check=False
        ).returncode
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    set_segments(1500)
    if options.delay:
        relay(options.delay)
    options.out.mkdir(exist_ok=True)
    env = Environment(options.work.resolve())
    for library in options.names or LIBRARIES:
        record(env, library, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
