"""Records clients in five languages on ports that nobody named, against two releases of the broker.

    sudo python3 tests/data/odd_ports/record.py --work FOLDER [NAME ...]

It starts brokers as `captures/record.py` does, and needs what that needs, and Go and Rust. Everything is
installed into the work folder first; the recording then runs in a network namespace of its own. Ports of
clients lie between the two ports of brokers: neither the lower nor the higher one is always the broker's.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

HERE = Path(__file__).resolve().parent
CLIENTS = HERE / "clients"
sys.path.insert(0, str(HERE.parents[2] / "captures"))

from recording import brokers, capturing, environments  # noqa: E402
from recording.environments import Environment  # noqa: E402

SECONDS = "2.2"
JAVA_SECONDS = "4"
CLIENT_SECONDS = 60
SETTLE_SECONDS = 1.5
"""The kernel hands packets over in blocks, the last one a second after it was begun."""
CLIENT_PORTS = "30000 40000"
LOW, HIGH = 27_094, 61_093
CREATE = """
import sys
from confluent_kafka.admin import AdminClient, NewTopic
client = AdminClient({"bootstrap.servers": sys.argv[1]})
for done in client.create_topics([NewTopic("orders", 1)]).values():
    done.result(20)
"""
RUNS = {
    "librdkafka": ("4.3", HIGH),
    "kafka-python": ("4.3", LOW),
    "aiokafka": ("4.3", HIGH),
    "franz-go": ("4.3", LOW),
    "franz-go-3.9": ("3.9", HIGH),
    "sarama": ("4.3", HIGH),
    "kafka-go": ("4.3", LOW),
    "kafkajs": ("4.3", HIGH),
    "platformatic": ("4.3", LOW),
    "rskafka": ("4.3", HIGH),
    "java-classic": ("3.9", LOW),
    "java-consumer": ("4.3", HIGH),
}


class Release(Environment):
    """The environment of `captures`, but the broker called 4.3 there may be another release."""

    broker = "kafka-4.3"

    def java(self, version: str, *arguments: str, heap: str = "400m") -> list[str]:
        """Return a Java command line with the jars of one release on the class path."""
        own = self.broker if arguments[0].startswith("kafka.") else version
        return super().java(own, *arguments, heap=heap)


def command(name: str, env: Environment) -> list[str]:
    """Return the command line of a client."""
    library = name.removesuffix("-3.9")
    if library in ("librdkafka", "kafka-python", "aiokafka"):
        return [str(env.work / "odd-venv/bin/python"), str(CLIENTS / "steady.py"), library, SECONDS]
    if library in ("franz-go", "sarama", "kafka-go"):
        return [str(env.work / "steady-go"), library, SECONDS]
    if library in ("kafkajs", "platformatic"):
        script = {"kafkajs": "kafkajs.cjs", "platformatic": "platformatic.mjs"}[library]
        return ["node", str(env.work / "odd-node" / script), SECONDS]
    if library == "rskafka":
        return [str(env.work / "rust/release/steady-rust"), SECONDS]
    return env.java("kafka-4.3", str(CLIENTS / "Steady.java"), JAVA_SECONDS, library.removeprefix("java-"))


def set_up(env: Environment) -> None:
    """Install clients and brokers; what is there already stays."""
    env.set_up()
    run = environments._run
    if not (env.work / "odd-venv").exists():
        run([sys.executable, "-m", "venv", str(env.work / "odd-venv")])
        run([str(env.work / "odd-venv/bin/pip"), "install", "-q", "-r", str(CLIENTS / "requirements.txt")])
    if not env.jars("kafka-3.9").exists():
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={env.jars('kafka-3.9')}"]
        run(["mvn", "-q", "-B", "-f", str(CLIENTS / "kafka-3.9/pom.xml"), *goal])
        shutil.copy(env.jars("kafka-4.3") / "telemetry.jar", env.jars("kafka-3.9"))
    shutil.copytree(CLIENTS / "node", env.work / "odd-node", dirs_exist_ok=True)
    npm = ["npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--prefix"]
    run([*npm, str(env.work / "odd-node")])
    run(["go", "build", "-C", str(CLIENTS / "go"), "-o", str(env.work / "steady-go"), "."])
    shutil.copytree(CLIENTS / "rust", env.work / "odd-rust", dirs_exist_ok=True)
    places = [
        "--manifest-path",
        str(env.work / "odd-rust/Cargo.toml"),
        "--target-dir",
        str(env.work / "rust"),
    ]
    run(["cargo", "build", "-q", "--release", *places])


@contextmanager
def recording(path: Path, port: int) -> Iterator[None]:
    """Capture one port of the loopback interface while the body runs."""
    sniffer = subprocess.Popen(capturing.tcpdump(path, "lo", [port], None), stderr=subprocess.PIPE)
    assert sniffer.stderr is not None
    sniffer.stderr.readline()
    time.sleep(0.3)
    try:
        yield
        time.sleep(SETTLE_SECONDS)
    finally:
        sniffer.send_signal(signal.SIGINT)
        sniffer.wait(20)


def record(name: str, env: Release, out: Path) -> str:
    """Record one client; returns a line about it."""
    release, port = RUNS[name]
    env.__class__.broker = f"kafka-{release}"
    run = env.work / "run" / f"odd-{name}"
    shutil.rmtree(run, ignore_errors=True)
    run.mkdir(parents=True)
    facts, path = run / "facts.json", run / f"{name}.pcap"
    extra = {"listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:19093", "num.partitions": "1"}
    with brokers.kafka_4(env, run, extra, ports=(port,)) as broker:
        create = [env.work / "odd-venv/bin/python", "-c", CREATE, broker.bootstrap]
        subprocess.run(create, check=True, timeout=CLIENT_SECONDS)
        own = {"BOOTSTRAP": broker.bootstrap, "FACTS": str(facts), "KAFKAJS_NO_PARTITIONER_WARNING": "1"}
        with recording(path, port):
            subprocess.run(
                command(name, env), env={**os.environ, **own}, check=True, capture_output=True,
                timeout=CLIENT_SECONDS,
            )  # fmt: skip
    told = json.loads(facts.read_text())
    note = {"client": name, "broker": broker.bootstrap, "release": release, "produced": told["produced"]}
    (out / f"{name}.json").write_text(json.dumps(note) + "\n")
    subprocess.run(["zstd", "-q", "-19", "-f", path, "-o", out / f"{name}.pcap.zst"], check=True)
    return f"{capturing.packets(path)} packets, {len(told['produced'])} records"


def main() -> int:
    """Parse arguments, set up, and record."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="clients to record (default: all)")
    parser.add_argument("--work", type=Path, required=True, help="folder for what is installed and run")
    parser.add_argument("--out", type=Path, default=HERE / "captures", help="folder for the captures")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    env = Release(options.work.resolve())
    if not options.inside:
        set_up(replace(env))
        again = ["unshare", "--net", sys.executable, __file__, "--inside", *sys.argv[1:]]
        return subprocess.run(again, check=False).returncode
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    subprocess.run(["sysctl", "-qw", f"net.ipv4.ip_local_port_range={CLIENT_PORTS}"], check=True)
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.names or RUNS:
        try:
            print(f"{name}: {record(name, env, options.out.resolve())}", flush=True)
        except subprocess.CalledProcessError as failed:
            print(f"{name}: FAILED: {(failed.stderr or b'').decode()[-400:]}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
