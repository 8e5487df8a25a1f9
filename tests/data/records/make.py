"""Makes `batches.json`: record data as kafka-python and aiokafka write it, and the records they were given.

Run in an environment of its own with kafka-python, aiokafka, cramjam, lz4, python-snappy, xxhash and
zstandard installed:

    python tests/data/records/make.py > tests/data/records/batches.json

Both are implementations that share no code with kwsniff (and their builders none with each other), so what
went in is what kwsniff has to get out.
"""

import base64
import json
from importlib.metadata import version

import kafka.record.default_records as kafka_default
import kafka.record.legacy_records as kafka_legacy
import snappy
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from kafka.record import MemoryRecordsBuilder

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
NOON = 1_700_000_000_000
RECORDS = [
    (NOON, b"key", b"value " * 40, []),
    (NOON + 1, None, b"without key " * 20, []),
    (NOON + 1, b"tombstone", None, []),
    (NOON - 5, b"", b"", []),
    (NOON + 90_000, bytes(range(256)), "ключ".encode() * 30, [("trace", b"\x00\x01"), ("empty", b"")]),
    (NOON + 90_001, b"k" * 200, b"v" * 800, [("null", None), ("null", b"twice"), ("", b"nameless")]),
]


def text(data):
    return None if data is None else base64.b64encode(data).decode()


def by_kafka_python(magic, codec):
    builder = MemoryRecordsBuilder(magic, codec, 1 << 20)
    for timestamp, key, value, headers in RECORDS:
        builder.append(timestamp, key, value, headers if magic == 2 else [])
    builder.close()
    return bytes(builder.buffer())


def by_aiokafka(magic, codec, transactional=False):
    if magic == 2:
        ids = (4711, 3, 42) if transactional else (-1, -1, -1)
        builder = DefaultRecordBatchBuilder(magic, codec, transactional, *ids, 1 << 20)
    else:
        builder = LegacyRecordBatchBuilder(magic, codec, 1 << 20)
    for offset, (timestamp, key, value, headers) in enumerate(RECORDS):
        if magic == 2:
            builder.append(offset, timestamp, key, value, headers)
        else:
            builder.append(offset, timestamp, key, value)
    return bytes(builder.build())


def main():
    batches = []

    def add(name, producer, magic, codec, data, **more):
        made_by = f"{producer} {version(producer)}"
        batch = {"name": f"{producer} {name}", "by": made_by, "magic": magic, "codec": CODECS[codec]}
        batches.append({**batch, "data": text(data), **more})

    for magic in (0, 1, 2):
        for codec in range(5 if magic == 2 else 4):
            name = f"magic {magic} {CODECS[codec]}"
            add(name, "kafka-python", magic, codec, by_kafka_python(magic, codec))
            if (magic, codec) != (0, 3):
                add(name, "aiokafka", magic, codec, by_aiokafka(magic, codec))
    add("transactional", "aiokafka", 2, 1, by_aiokafka(2, 1, transactional=True), ids=[4711, 3, 42])
    for module in (kafka_default, kafka_legacy):
        module.snappy_encode = snappy.compress
    for magic in (0, 1, 2):
        add(f"magic {magic} raw snappy", "kafka-python", magic, 2, by_kafka_python(magic, 2))
    records = [
        [timestamp, text(key), text(value), [[name, text(data)] for name, data in headers]]
        for timestamp, key, value, headers in RECORDS
    ]
    print(json.dumps({"records": records, "batches": batches}, indent=1))


main()
