"""TLS handshakes that fail, by kafka-python or librdkafka, or by hand: LIBRARY. One line of ATTEMPTS is one client."""

import contextlib
import logging
import os
import socket
import ssl
import sys
import time

# librdkafka has no setting for the version of TLS, but OpenSSL inside of it has, and reads it once.
if len(sys.argv) > 2 and sys.argv[2] in ("1.2", "1.3"):
    conf = f"{os.environ['RUN']}/openssl-{sys.argv[2]}"
    with open(conf, "w") as out:
        out.write("openssl_conf=o\n[o]\nssl_conf=s\n[s]\nsystem_default=d\n[d]\n"
                  f"MinProtocol=TLSv{sys.argv[2]}\nMaxProtocol=TLSv{sys.argv[2]}\n")  # fmt: skip
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


def by_hand(name):
    """What no client library does on purpose: leave in the middle, or look whether a broker is there."""
    what, version = name.rsplit("-", 1)
    made = context(version, "authority")
    plain = socket.create_connection((NAME, int(GOOD)))
    if what == "gave-up":  # after the broker's hello, without a word
        inward, outward = ssl.MemoryBIO(), ssl.MemoryBIO()
        bare = made.wrap_bio(inward, outward, server_hostname=NAME)
        try:
            bare.do_handshake()
        except ssl.SSLWantReadError:
            plain.sendall(outward.read())
        plain.recv(65536)
    else:
        secured = made.wrap_socket(plain, server_hostname=NAME)
        if what == "farewell":
            secured.settimeout(0.3)
            with contextlib.suppress(OSError):
                secured.unwrap()  # says close_notify; Java's answer is not waited for
        plain = secured
    plain.close()
    words.append(what)


logging.basicConfig(handlers=[Said()], level=logging.WARNING)
library = sys.argv[1]
if library == "by-hand":
    facts = Facts("Python's ssl", ssl.OPENSSL_VERSION)
    cases = [(f"{what}-{version}", lambda name=f"{what}-{version}": by_hand(name))
             for what in ("gave-up", "check", "farewell") for version in ("1.2", "1.3")]  # fmt: skip
    for name, port, version, ciphers in (("soon", SOON, "1.2", "-"), ("old-1.0", OLD, "1.0", "ALL:@SECLEVEL=0"),
                                         ("old-1.1", OLD, "1.1", "ALL:@SECLEVEL=0"), ("weak-suite", OLD, "1.2", "AES128-GCM-SHA256")):  # fmt: skip
        cases.append((name, lambda a=(version, port, "authority", "-", ciphers): kafka_python(*a)))
else:
    facts = Facts(*(("kafka-python", kafka.__version__) if library == "kafka-python" else
                    ("librdkafka", confluent_kafka.libversion()[0])))  # fmt: skip
    run = {"kafka-python": kafka_python, "librdkafka": librdkafka}[library]
    only = sys.argv[2:]
    cases = [(f"{name}-{version}", lambda a=(version, *more): run(*a)) for name, version, *more in ATTEMPTS
             if not only or version in only]  # fmt: skip
for name, attempt in cases:
    words, begin = [], time.time()
    attempt()
    time.sleep(0.25)
    facts.note(case=name, begin=begin, end=time.time(), says=" | ".join(dict.fromkeys(words))[:400])
facts.save()
