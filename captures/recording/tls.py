"""Samples of traffic over TLS with its secrets. Every client does the same over plaintext first."""

from __future__ import annotations

from recording import failures
from recording.encrypted import Encrypted
from recording.samples import Client, Sample, python

TLS = (
    Sample(
        "tls-kafka-python",
        "kafka-python over TLS 1.2 with one cipher suite after the other: AES-GCM, AES-CBC and ChaCha20 with an "
        "ephemeral key exchange, AES-GCM and AES-CBC with RSA's; the client's own key log",
        Encrypted(),
        (python("tls_kafka_python.py"),),
        "tls-kafka-python.pcapng.zst",
        compress="zst",
    ),
    Sample(
        "tls-aiokafka",
        "aiokafka over TLS 1.3 without authentication, with PLAIN and with SCRAM-SHA-256; key log by "
        "SSLKEYLOGFILE",
        Encrypted(),
        (python("tls_aiokafka.py", "plaintext", "tls", "plain", "scram"),),
        "tls-aiokafka.pcapng.zst",
        compress="zst",
    ),
    Sample(
        "tls-mutual",
        "aiokafka with a certificate of its own over TLS 1.3 and 1.2; without one it is refused",
        Encrypted(mutual=True),
        (python("tls_aiokafka.py", "plaintext", "mutual", "mutual-1.2", "stranger"),),
        "tls-mutual.pcapng.zst",
        compress="zst",
    ),
    Sample(
        "tls-key-update",
        "aiokafka over TLS 1.3 to a broker that changes a key after 4 kB: KeyUpdate in both directions, "
        "several times",
        Encrypted(limit="2^12"),
        (python("tls_aiokafka.py", "plaintext", "large"),),
        "tls-key-update.pcapng.zst",
        compress="zst",
        mtu=1500,
    ),
    Sample(
        "tls-kcat",
        "kcat and librdkafka of Debian over TLS 1.3 and 1.2, the key log by a preloaded library",
        Encrypted(),
        (python("tls_kcat.py"),),
        "tls-kcat.pcapng",
    ),
    Sample(
        "tls-librdkafka",
        "librdkafka as its Python package carries it over TLS 1.3, with a group; the key log is the broker's",
        Encrypted(agent=True),
        (python("tls_librdkafka.py"),),
        "tls-librdkafka.pcapng.zst",
        compress="zst",
    ),
    Sample(
        "tls-java",
        "the Java client of Apache Kafka 4.4 over TLS 1.3 and 1.2, sessions resumed; key log by an agent, which "
        "names TLS 1.2 sessions by their id and writes nothing for those that are resumed",
        Encrypted(resuming=True),
        (Client("kafka-4.4", "kafka-4.4/Encrypted.java"),),
        "tls-java.pcapng.zst",
        compress="zst",
    ),
    Sample(
        "tls-kafkajs",
        "KafkaJS over TLS 1.3 with ChaCha20, over TLS 1.2, and over TLS 1.3 with AES-128 and PLAIN inside; key log by "
        "Node.js",
        Encrypted(),
        (Client("node", "tls_kafkajs.js"),),
        "tls-kafkajs.pcapng.zst",
        compress="zst",
    ),
    Sample(
        "tls-franz-go",
        "franz-go over TLS 1.3 and 1.2, sessions resumed; key log by KeyLogWriter, which gets nothing for TLS 1.2 "
        "sessions that are resumed",
        Encrypted(resuming=True),
        (Client("go", "go/franz", ("plaintext", "tls1.3", "tls1.2")),),
        "tls-franz-go.pcapng.zst",
        compress="zst",
    ),
    Sample(
        "tls-hello-retry",
        "franz-go to a broker that takes none of its key shares and asks for another: HelloRetryRequest. A pcap "
        "file has no place for secrets",
        Encrypted(groups="secp384r1"),
        (Client("go", "go/franz", ("plaintext", "tls1.3")),),
        "tls-hello-retry.pcap.zst",
        tool="tcpdump",
        compress="zst",
        embed=False,
    ),
    Sample(
        "tls-sarama",
        "sarama over TLS 1.3, and over TLS 1.2 with PLAIN; key log by KeyLogWriter",
        Encrypted(),
        (Client("go", "go/sarama"),),
        "tls-sarama.pcapng.zst",
        compress="zst",
    ),
    Sample(
        "tls-failures",
        "handshakes that fail, without keys: certificates that one end does not accept, no version or suite in "
        "common, clients that leave; a load balancer's checks, old TLS and a certificate that expires soon",
        failures.refusing,
        (
            python("tls_failures.py", "kafka-python", "all"),
            python("tls_failures.py", "librdkafka", "1.2", "unknown-ca", "no-certificate", "no-suite"),
            python("tls_failures.py", "librdkafka", "1.3", "no-certificate"),
            Client("kafka-4.4", "kafka-4.4/Failures.java", (str(failures.SUITES),)),
            Client("go", "go/failures", ("unknown-ca-1.2", "unknown-ca-1.3", "no-certificate-1.3")),
            python("tls_failures.py", "by-hand", "all"),
        ),
        "tls-failures.pcapng.zst",
        compress="zst",
    ),
)
