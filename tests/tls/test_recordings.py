"""The samples of TLS hold what is said of them: asked are tshark, the clients and the broker, not kwsniff."""

from __future__ import annotations

import gzip
import json
from collections import Counter

import pytest

from tests.samples import CAPTURES, Row, encrypted, sample
from tests.tls import tshark

pytestmark = tshark.NEEDED

RESUMED = {"tls-franz-go"}
"""Sessions of TLS 1.2 are resumed by ticket, and the broker sends another ticket at once: tshark 4.0 looks
the secret up by the new one, of which it knows nothing."""


def logged(name: str) -> list[Row]:
    text = gzip.decompress((CAPTURES / "expected" / f"{name}.requests.jsonl.gz").read_bytes()).decode()
    return [json.loads(line) for line in text.splitlines()]


def port(end: str) -> int:
    return int(end.rpartition(":")[2])


@pytest.mark.parametrize("name", sorted(set(encrypted()) - RESUMED))
def test_tshark_decrypts_every_request_that_the_broker_logged(name: str) -> None:
    recorded, note = sample(name), sample(name).note
    ports = note["encrypted"]
    found = tshark.requests(recorded.paths[0], ports, CAPTURES / note["keys"])
    seen = Counter((each.client_port, each.correlation_id, each.api_key, each.api_version) for each in found)
    wanted: Counter[tuple[int, int, int, int]] = Counter()
    for row in logged(name):
        if port(row["broker"]) in ports:
            header = row["requestHeader"]
            request = (header["correlationId"], header["requestApiKey"], header["requestApiVersion"])
            wanted[(port(row["client"]), *request)] += 1
    assert wanted
    assert not wanted - seen


@pytest.mark.parametrize("name", encrypted())
def test_secrets_in_the_capture_are_those_of_the_key_log(name: str) -> None:
    recorded = sample(name)
    within = tshark.conversations(recorded.paths[0])
    beside = tshark.conversations(recorded.paths[0], CAPTURES / recorded.note["keys"])
    assert beside
    assert within == ({} if name == "tls-hello-retry" else beside)


@pytest.mark.parametrize("name", encrypted())
def test_the_client_asks_the_same_over_plaintext_and_tls(name: str) -> None:
    """The calls without those whose number depends on time or on how connections are made."""
    asked: dict[bool, set[tuple[str, int]]] = {False: set(), True: set()}
    for row in logged(name):
        header = row["requestHeader"]
        call = (header["requestApiKeyName"], header["requestApiVersion"])
        asked[port(row["broker"]) in sample(name).note["encrypted"]].add(call)
    assert asked[False] == asked[True]
    assert {"PRODUCE", "FETCH", "METADATA"} <= {api for api, _ in asked[True]}
