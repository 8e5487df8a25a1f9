"""A broker whose listeners refuse clients in many ways, and what clients try there.

Each listener has a certificate or a setting of its own. `ATTEMPTS` are lines that the clients read, `NAME` is
the broker's host name, which exists in the recording's namespace only.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from recording.brokers import CLUSTER_ID, NAME, Broker, fresh, running, wait_for
from recording.environments import Environment
from recording.kafka_44 import node

GOOD, ELSEWHERE, EXPIRED, SOON, MUTUAL, ONLY_1_3, ONLY_1_2, SUITES, OLD = range(9094, 9103)
PORTS = (GOOD, ELSEWHERE, EXPIRED, SOON, MUTUAL, ONLY_1_3, ONLY_1_2, SUITES, OLD)

LISTENERS: dict[int, tuple[str, dict[str, str]]] = {
    GOOD: ("broker", {}),
    ELSEWHERE: ("elsewhere", {}),
    EXPIRED: ("expired", {}),
    SOON: ("soon", {}),
    MUTUAL: ("broker", {"ssl.client.auth": "required"}),
    ONLY_1_3: ("broker", {"ssl.enabled.protocols": "TLSv1.3"}),
    ONLY_1_2: ("broker", {"ssl.enabled.protocols": "TLSv1.2", "ssl.protocol": "TLSv1.2"}),
    SUITES: (
        "broker",
        {"ssl.cipher.suites": "TLS_AES_256_GCM_SHA384,TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"},
    ),
    OLD: ("rsa", {"ssl.enabled.protocols": "TLSv1,TLSv1.1,TLSv1.2", "ssl.protocol": "TLSv1.2"}),
}
"""The certificate of each listener, and its settings."""

CERTIFICATES = {
    "broker": (-1, 365, "authority", NAME),
    "elsewhere": (-1, 365, "authority", "elsewhere.test"),
    "expired": (-365, -1, "authority", NAME),
    "soon": (-360, 5, "authority", NAME),
    "rsa": (-1, 365, "authority", NAME),
    "client": (-1, 365, "authority", ""),
    "late-client": (-365, -1, "authority", ""),
    "strange-client": (-1, 365, "stranger", ""),
}
"""Valid from and until (days from now), who signs it, and the host that it is for."""

BOTH = ("1.2", "1.3")
ATTEMPTS = (
    *(("trusted", each, GOOD, "authority", "-", "-") for each in (*BOTH, "any")),
    *(("unknown-ca", each, GOOD, "stranger", "-", "-") for each in BOTH),
    *(("other-host", each, ELSEWHERE, "authority", "-", "-") for each in BOTH),
    *(("expired", each, EXPIRED, "authority", "-", "-") for each in BOTH),
    *(("no-certificate", each, MUTUAL, "authority", "-", "-") for each in BOTH),
    *(("strange-client", each, MUTUAL, "authority", "strange-client", "-") for each in BOTH),
    *(("late-client", each, MUTUAL, "authority", "late-client", "-") for each in BOTH),
    *(("own-certificate", each, MUTUAL, "authority", "client", "-") for each in BOTH),
    ("no-version", "1.2", ONLY_1_3, "authority", "-", "-"),
    ("no-version", "1.3", ONLY_1_2, "authority", "-", "-"),
    ("no-suite", "1.2", SUITES, "authority", "-", "128"),
)
"""Name, version, port, whom the client trusts, its own certificate, and whether it has AES-128 only."""


@contextmanager
def refusing(env: Environment, run: Path) -> Iterator[Broker]:
    """Start the broker."""
    certificates = make(fresh(run / "certificates"))
    names = {port: f"L{port}" for port in PORTS}
    values = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.bootstrap.servers": "127.0.0.1:19093",
        "listeners": ",".join(
            [*(f"{name}://127.0.0.1:{port}" for port, name in names.items()), "PLAINTEXT://127.0.0.1:9092"]
        )
        + ",CONTROLLER://127.0.0.1:19093",
        "listener.security.protocol.map": ",".join(f"{name}:SSL" for name in names.values())
        + ",CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "num.network.threads": "1",
    }
    for port, (certificate, more) in LISTENERS.items():
        settings = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(certificates / f"{certificate}.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(certificates / "authority.pem"),
            **more,
        }
        prefix = f"listener.name.{names[port].lower()}."
        values |= {prefix + key: value for key, value in settings.items()}
    security = run / "java.security"
    security.write_text("jdk.tls.disabledAlgorithms=SSLv3, NULL, anon\n")
    # Tickets that hold the session would make half of the sample.
    flags = [f"-Djava.security.properties={security}", "-Djdk.tls.server.enableSessionTicketExtension=false"]
    flags += ["-Dnetwork=debug"]
    folder = run / "node-1"
    with running(node(env, folder, values, CLUSTER_ID, flags=flags), folder / "log") as process:
        for port in PORTS:
            wait_for(port, process)
        time.sleep(1)
        attempts = "\n".join(" ".join(map(str, each)) for each in ATTEMPTS)
        extra = {"ATTEMPTS": attempts, "CERTIFICATES": str(certificates), "NAME": NAME, "OLD": str(OLD)}
        extra |= {"SOON": str(SOON)}
        yield Broker("Apache Kafka", "4.4.0", f"{NAME}:{GOOD}", PORTS, extra)


def make(folder: Path) -> Path:
    """Make two authorities and the certificates; return the folder."""
    now = datetime.now(UTC)
    for name in ("authority", "stranger"):
        files = ["-keyout", str(folder / f"{name}.key"), "-out", str(folder / f"{name}.pem")]
        openssl("req", "-x509", *key("ec"), "-noenc", "-days", "400", "-subj", f"/CN={name}", *files)
    (folder / "index").touch()
    (folder / "settings").write_text(
        f"[a]\nnew_certs_dir={folder}\ndatabase={folder}/index\nrand_serial=yes\ndefault_md=sha256\npolicy=p\n"
        "unique_subject=no\ncopy_extensions=copy\n[p]\ncommonName=supplied\n"
    )
    for name, (begin, end, signer, host) in CERTIFICATES.items():
        private, request, signed = (folder / f"{name}.{kind}" for kind in ("key", "csr", "pem"))
        more = ["-addext", f"subjectAltName=DNS:{host}"] if host else []
        if host == NAME:
            more[1] += ",IP:127.0.0.1"  # as the broker advertises itself
        kind = key("rsa" if name == "rsa" else "ec")
        openssl("req", "-new", *kind, "-noenc", "-subj", f"/CN={name}", *more,
                "-keyout", str(private), "-out", str(request))  # fmt: skip
        dates = [(now + timedelta(days=each)).strftime("%Y%m%d%H%M%SZ") for each in (begin, end)]
        openssl("ca", "-batch", "-notext", "-config", str(folder / "settings"), "-name", "a",
                "-cert", str(folder / f"{signer}.pem"), "-keyfile", str(folder / f"{signer}.key"),
                "-in", str(request), "-out", str(signed), "-startdate", dates[0], "-enddate", dates[1])  # fmt: skip
        signed.write_text(private.read_text() + signed.read_text())
    return folder


def key(kind: str) -> list[str]:
    """Options for a new key."""
    return (
        ["-newkey", "rsa:2048"] if kind == "rsa" else ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    )


def openssl(*arguments: str) -> None:
    """Run OpenSSL."""
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=60)
