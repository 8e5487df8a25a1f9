"""TLS handshakes that fail: LIBRARY VERSIONS [CASE ...]. One line of ATTEMPTS is one client of kafka-python or librdkafka;
by-hand is what no library does on purpose."""

import contextlib
import logging
import os
import re
import socket
import ssl
import sys
import time
from functools import partial

LIBRARY, VERSION, *CASES = sys.argv[1:]
if LIBRARY == "librdkafka":  # has no setting for the version of TLS, but OpenSSL inside of it has, and reads it once
    conf = f"{os.environ['RUN']}/openssl-{VERSION}"
    with open(conf, "w") as out:
        out.write("openssl_conf=o\n[o]\nssl_conf=s\n[s]\nsystem_default=d\n[d]\n"
                  f"MinProtocol=TLSv{VERSION}\nMaxProtocol=TLSv{VERSION}\n")  # fmt: skip
    os.environ["OPENSSL_CONF"] = conf
import confluent_kafka
import kafka
from facts import Facts
from kafka.admin import KafkaAdminClient

NAME, CERTIFICATES = os.environ["NAME"], os.environ["CERTIFICATES"]
VERSIONS = {"1.0": ssl.TLSVersion.TLSv1, "1.1": ssl.TLSVersion.TLSv1_1, "1.2": ssl.TLSVersion.TLSv1_2,
            "1.3": ssl.TLSVersion.TLSv1_3}  # fmt: skip
ATTEMPTS = [line.split() for line in os.environ["ATTEMPTS"].splitlines()]
GOOD, OLD, SOON = ATTEMPTS[0][2], os.environ["OLD"], os.environ["SOON"]
logging.getLogger("kafka").setLevel(logging.WARNING)


def file(name):
    return f"{CERTIFICATES}/{name}.pem"


def context(version, authority, certificate="-", ciphers="-"):
    made = ssl.create_default_context(cafile=file(authority))
    if version in VERSIONS:
        made.minimum_version = made.maximum_version = VERSIONS[version]
    if ciphers != "-":
        made.set_ciphers(ciphers)
    if certificate != "-":
        made.load_cert_chain(file(certificate))
    return made


class Said(logging.Handler):
    """What a library logs."""

    def emit(self, record):
        words.append(record.getMessage())


def kafka_python(version, port, authority, certificate, ciphers):
    only = {"128": "ECDHE+AES128"}.get(ciphers, ciphers)
    try:
        KafkaAdminClient(bootstrap_servers=f"{NAME}:{port}", security_protocol="SSL", reconnect_backoff_ms=9000,
                         reconnect_backoff_max_ms=9000, bootstrap_timeout_ms=900,
                         ssl_context=context(version, authority, certificate, only)).close()  # fmt: skip
        words.append("ok")
    except Exception as failed:
        words.append(f"{type(failed).__name__}: {failed}")


def librdkafka(version, port, authority, certificate, ciphers):
    settings = {"bootstrap.servers": f"{NAME}:{port}", "security.protocol": "SSL", "ssl.ca.location": file(authority),
                "reconnect.backoff.ms": 9000, "reconnect.backoff.max.ms": 9000, "error_cb": lambda error: words.append(error.str())}  # fmt: skip
    if certificate != "-":
        settings |= {"ssl.certificate.location": file(certificate), "ssl.key.location": f"{CERTIFICATES}/{certificate}.key"}
    if ciphers != "-":
        settings["ssl.cipher.suites"] = "ECDHE+AES128"
    client = confluent_kafka.Producer(settings, logger=logging.getLogger("rdkafka"))
    try:
        client.list_topics(timeout=1)
        words.append("ok")
    except confluent_kafka.KafkaException as failed:
        client.poll(0.1)
        words.append(str(failed.args[0].str()))


def gave_up(version):
    """Leave after the broker's hello, without a word."""
    inward, outward = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context(version, "authority").wrap_bio(inward, outward, server_hostname=NAME).do_handshake()
    with socket.create_connection((NAME, int(GOOD))) as plain:
        plain.sendall(outward.read())
        plain.recv(65536)


def check(version, politely=False):
    """Look whether the broker is there, as load balancers do."""
    with socket.create_connection((NAME, int(GOOD))) as plain:
        secured = context(version, "authority").wrap_socket(plain, server_hostname=NAME)
        if politely:
            with contextlib.suppress(OSError):
                secured.unwrap()  # says close_notify
        secured.close()


def churn():
    """One connection after the other from an address of its own, none of which resumes a session."""
    for _ in range(30):
        made = context("1.2", "authority")
        made.options |= ssl.OP_NO_TICKET
        with socket.create_connection((NAME, int(GOOD)), source_address=("127.0.0.9", 0)) as plain:
            made.wrap_socket(plain, server_hostname=NAME).close()
        time.sleep(0.03)


logging.basicConfig(handlers=[Said()], level=logging.WARNING)
if LIBRARY == "by-hand":
    facts = Facts("Python's ssl", ssl.OPENSSL_VERSION)
    cases = {"churn-1.2": churn}
    for version in ("1.2", "1.3"):
        cases |= {f"gave-up-{version}": partial(gave_up, version), f"check-{version}": partial(check, version),
                  f"farewell-{version}": partial(check, version, True)}  # fmt: skip
    for name, port, version, ciphers in (("soon-1.2", SOON, "1.2", "-"), ("old-1.0", OLD, "1.0", "ALL:@SECLEVEL=0"),
                                         ("weak-1.2", OLD, "1.2", "AES128-GCM-SHA256")):  # fmt: skip
        cases[name] = partial(kafka_python, version, port, "authority", "-", ciphers)
else:
    version = {"kafka-python": kafka.__version__, "librdkafka": confluent_kafka.libversion()[0]}[LIBRARY]
    facts, run = Facts(LIBRARY, version), {"kafka-python": kafka_python, "librdkafka": librdkafka}[LIBRARY]
    cases = {f"{name}-{version}": partial(run, version, *more) for name, version, *more in ATTEMPTS
             if VERSION in ("all", version) and (not CASES or name in CASES)}  # fmt: skip
for name, attempt in cases.items():
    words, begin = [], time.time()
    attempt()
    time.sleep(0.25)
    facts.note(case=name, begin=begin, end=time.time(), says=" | ".join(dict.fromkeys(words))[:400])
if LIBRARY == "by-hand":  # which comes last: what the broker said, by the client's port
    port = None
    with open(f"{os.environ['RUN']}/node-1/log") as log:
        for line in log:
            if found := re.search(r"channelId=\S+:\d+-\S+:(\d+)-", line):
                port = int(found[1])
            elif port and (found := re.match(r"javax\.net\.ssl\.\w+: (.*)", line)):
                facts.note(port=port, says=found[1][:200])
                port = None
facts.save()
