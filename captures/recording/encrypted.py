"""A broker of Apache Kafka 4.4 that speaks TLS beside plaintext, and the key log of its connections.

Certificates and keys are made for one run and good nowhere else. The secrets of the connections are written by
the clients, or by an agent in the broker's Java machine; which of the two, each sample says.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from recording.brokers import CLUSTER_ID, Broker, fresh, running, wait_for
from recording.environments import Environment
from recording.kafka_44 import node

PLAINTEXT, SSL, SASL_SSL = 9092, 9093, 9094
USER, PASSWORD = "alice", "throw-away-1"

LISTENERS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.bootstrap.servers": "127.0.0.1:19093",
    "listeners": f"PLAINTEXT://127.0.0.1:{PLAINTEXT},SSL://127.0.0.1:{SSL},SASL_SSL://127.0.0.1:{SASL_SSL},"
    "CONTROLLER://127.0.0.1:19093",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "listener.name.sasl_ssl.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule "
    f'required user_{USER}="{PASSWORD}";',
    "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config": "org.apache.kafka.common.security.scram."
    "ScramLoginModule required;",
    "super.users": f"User:ANONYMOUS;User:{USER};User:CN=client",
}

# What Java disables (RSA key exchange, from one of its updates on) is enabled; a key is used for a set number
# of bytes, which is 2^37 where nothing else is said.
SECURITY = "jdk.tls.disabledAlgorithms=SSLv3, TLSv1, TLSv1.1, NULL, anon\njdk.tls.keyLimits={limits}\n"
CIPHERS = ("AES/GCM/NoPadding", "ChaCha20-Poly1305")


@dataclass(frozen=True)
class Encrypted:
    """How a sample's broker differs from others that speak TLS; called to start it."""

    agent: bool = False
    """The broker's secrets are logged, not its clients'."""
    mutual: bool = False
    """Clients must have a certificate, also those with a password."""
    groups: str = ""
    """The only groups for the key exchange, in Java's names."""
    limit: str = "2^37"
    """Bytes after which a key is changed."""
    resuming: bool = False
    """Sessions are resumed. A broker's network threads do not share them, so it has one and not three."""

    @contextmanager
    def __call__(self, env: Environment, run: Path) -> Iterator[Broker]:
        """Start the broker with plaintext (9092), TLS (9093) and passwords inside TLS (9094)."""
        folder, keys = run / "node-1", run / "keys"
        certificates = make_certificates(fresh(run / "certificates"))
        values = {**LISTENERS, **self.settings(certificates)}
        flags = self.flags(run, [f"-javaagent:{env.agent()}={keys}"] if self.agent else [])
        users = [f"SCRAM-SHA-256=[name={USER},password={PASSWORD}]"]
        command = node(env, folder, values, CLUSTER_ID, users, flags)
        with running(command, folder / "log") as process:
            for port in (PLAINTEXT, SSL, SASL_SSL):
                wait_for(port, process)
            time.sleep(1)
            yield Broker(
                "Apache Kafka",
                "4.4.0",
                f"127.0.0.1:{SSL}",
                (PLAINTEXT, SSL, SASL_SSL),
                {**client_variables(certificates), **({} if self.agent else logging_variables(env, keys))},
                requests=(folder / "requests",),
                encrypted=(SSL, SASL_SSL),
                keys=keys,
            )

    def settings(self, certificates: Path) -> dict[str, str]:
        """Return the broker's settings for its certificate and its clients'."""
        asked = "required" if self.mutual else "none"
        settings = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(certificates / "broker.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(certificates / "authority.pem"),
        }
        if self.resuming:
            settings["num.network.threads"] = "1"
        for listener in ("ssl", "sasl_ssl"):
            settings[f"listener.name.{listener}.ssl.client.auth"] = asked
        return settings

    def flags(self, run: Path, agent: Sequence[str]) -> list[str]:
        """Return what the broker's Java machine is told."""
        limits = ", ".join(f"{cipher} KeyUpdate {self.limit}" for cipher in CIPHERS)
        properties = run / "java.security"
        properties.write_text(SECURITY.format(limits=limits))
        groups = [f"-Djdk.tls.namedGroups={self.groups}"] if self.groups else []
        return [f"-Djava.security.properties={properties}", *groups, *agent]


def make_certificates(folder: Path) -> Path:
    """Make an authority, and certificates of a broker and a client that it signs; return the folder."""
    common = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-noenc", "-days", "30"]
    signed = ["-CA", str(folder / "authority.pem"), "-CAkey", str(folder / "authority.key")]
    for name, more in (
        ("authority", []),
        ("broker", [*signed, "-addext", "subjectAltName=IP:127.0.0.1"]),
        ("client", signed),
    ):
        key, certificate = folder / f"{name}.key", folder / f"{name}.pem"
        files = ["-keyout", str(key), "-out", str(certificate), "-subj", f"/CN={name}"]
        subprocess.run([*common, *more, *files], check=True, capture_output=True, timeout=60)
        if name != "authority":  # a Java keystore of type PEM is the key and then its certificates
            certificate.write_text(key.read_text() + certificate.read_text())
    return folder


def client_variables(certificates: Path) -> dict[str, str]:
    """Return what clients are told of the listeners and of whom to trust."""
    return {
        "PLAINTEXT": f"127.0.0.1:{PLAINTEXT}",
        "SASL_SSL": f"127.0.0.1:{SASL_SSL}",
        "AUTHORITY": str(certificates / "authority.pem"),
        "CERTIFICATE": str(certificates / "client.pem"),
        "SASL_USER": USER,
        "SASL_PASSWORD": PASSWORD,
    }


def logging_variables(env: Environment, keys: Path) -> dict[str, str]:
    """Return what makes clients write a key log: Python and Go, Node.js, Java, and what loads OpenSSL."""
    return {
        "SSLKEYLOGFILE": str(keys),
        "NODE_OPTIONS": f"--tls-keylog={keys}",
        "JAVA_TOOL_OPTIONS": f"-javaagent:{env.agent()}={keys}",
        "KEYLOG_LIBRARY": str(env.keylog_library),
    }


def keep(keys: Path, target: Path) -> None:
    """Copy a key log: each secret once, without comments (the agent writes some) and without a broken line."""
    lines = dict.fromkeys(line for line in keys.read_text().splitlines() if line.count(" ") == 2)
    target.write_text("".join(f"{line}\n" for line in lines if not line.startswith("#")))


def embed(keys: Path, capture: Path) -> None:
    """Put a key log into a pcapng file, as a Decryption Secrets Block in front of the packets."""
    with_keys = capture.with_name("with-keys.pcapng")
    command = ["editcap", "--inject-secrets", f"tls,{keys}", str(capture), str(with_keys)]
    subprocess.run(command, check=True, capture_output=True)
    with_keys.replace(capture)
