"""From the bytes of a message to what an event says of it, for every API and version, with the quirks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

from kwsniff.binary import DecodeError, uvarint
from kwsniff.config import Config
from kwsniff.events import PartitionRow
from kwsniff.spec.compile import FactsDecoder, decoder
from kwsniff.spec.facts import Facts
from kwsniff.spec.load import catalog
from kwsniff.spec.model import Field
from kwsniff.wire import quirks
from kwsniff.wire.records import summarize
from kwsniff.wire.render import render


@dataclass(frozen=True, slots=True)
class Codec:
    """How to read the messages of one API at one version."""

    api_key: int
    version: int
    request: FactsDecoder
    response: FactsDecoder
    flexible_request: bool
    """The request header ends with tagged fields."""
    flexible_response: bool
    request_records: bool
    """The request has record data."""
    response_records: bool
    client_id: bool
    """The request header has a client id."""


class Body(NamedTuple):
    """What one body says."""

    facts: Facts
    partitions: list[PartitionRow] | None
    record_count: int | None
    record_bytes: int | None
    json: str | None
    anomalies: list[tuple[str, str]]
    """Codes and details of what was wrong, although the body could be decoded."""


@cache
def codec(api_key: int, version: int) -> Codec | str:
    """The codec of an API version, or the anomaly code that says why there is none."""
    api = catalog().apis.get(api_key)
    if api is None:
        return "unknown_api"
    if not api.min_version <= version <= api.max_version:
        return "unknown_version"
    header = api.request_header_version(version)
    return Codec(
        api_key,
        version,
        decoder(api_key, version, "request", "facts"),
        decoder(api_key, version, "response", "facts"),
        flexible_request=header >= 2,
        flexible_response=api.response_header_version(version) >= 1,
        request_records=_has_records(api.request.fields),
        response_records=_has_records(api.response.fields),
        client_id=header >= 1,
    )


def _has_records(fields: tuple[Field, ...]) -> bool:
    return any("records" in field.roles or _has_records(field.fields) for field in fields)


def skip_tags(data: bytes, pos: int, end: int) -> int:
    """Position after the tagged fields of a header (KIP-482)."""
    count, pos = uvarint(data, pos, end)
    for _ in range(count):
        _, pos = uvarint(data, pos, end)
        length, pos = uvarint(data, pos, end)
        pos += length
        if pos > end:
            raise DecodeError("header_malformed", offset=end)
    return pos


def read(codec: Codec, direction: str, data: bytes, pos: int, end: int, config: Config) -> Body:
    """Decode the body of a request or response that lies in `data` from `pos` to `end`.

    Raises:
        DecodeError: with path and offset, if the bytes are not what the layout says.
    """
    if direction == "response" and quirks.is_downgraded(codec.api_key, codec.version, data, pos, end):
        return _read_downgraded(codec, data, pos, end, config)
    version, decode = codec.version, codec.request if direction == "request" else codec.response
    facts, after = decode(data, pos, end)
    anomalies = (
        [] if after == end else [("trailing_bytes", f"{end - after} bytes after the {direction} body")]
    )
    has_records = codec.request_records if direction == "request" else codec.response_records
    partitions, count, size = _partitions(facts, data, direction, has_records, config, anomalies)
    json = None
    if config.full:
        full, _ = decoder(codec.api_key, version, direction, "full")(data, pos, end)
        json = render(codec.api_key, version, direction, full, config, anomalies)
    return Body(facts, partitions, count, size, json, anomalies)


def _read_downgraded(codec: Codec, data: bytes, pos: int, end: int, config: Config) -> Body:
    """An ApiVersions response that says the version is not supported; its error code is all that counts."""
    v0 = replace(codec, version=0, response=decoder(codec.api_key, 0, "response", "facts"))
    try:
        return read(v0, "response", data, pos, end, config)
    except DecodeError as error:
        # librdkafka's mock cluster writes a short array here.
        facts = Facts(quirks.UNSUPPORTED_VERSION, 1, *[None] * 10)
        return Body(facts, None, None, None, None, [(error.code, f"response {error.path}")])


def _partitions(
    facts: Facts,
    data: bytes,
    direction: str,
    has_records: bool,
    config: Config,
    anomalies: list[tuple[str, str]],
) -> tuple[list[PartitionRow] | None, int | None, int | None]:
    """Rows of a body's partitions, with the sum of their records (None if unknown) and record bytes."""
    if facts.partitions is None:
        return None, (0 if has_records else None), (0 if has_records else None)
    rows: list[PartitionRow] = []
    count: int | None = 0
    size = 0
    for topic, topic_id, partition, error_code, base_offset, start, end in facts.partitions:
        if start < 0:
            rows.append((topic, topic_id, partition, error_code, base_offset, None, None, None))
            continue
        summary = summarize(data, start, end, verify_crc=config.verify_crc)
        first = base_offset
        if direction == "response" and first is None:  # a producer's batches count from 0, not from an offset
            first = summary.base_offset
        codec = summary.codec if summary.batches else None
        rows.append((topic, topic_id, partition, error_code, first, summary.records, summary.bytes, codec))
        size += summary.bytes
        count = None if count is None or summary.records is None else count + summary.records
        if summary.crc_mismatches:
            anomalies.append(("crc_mismatch", f"{summary.crc_mismatches} of {topic or topic_id}-{partition}"))
        if summary.partial and direction == "request":
            anomalies.append(("batch_malformed", f"batch of {topic or topic_id}-{partition} cut short"))
        if summary.malformed:
            anomalies.append((summary.malformed, f"record data of {topic or topic_id}-{partition}"))
    return rows, (count if has_records else None), (size if has_records else None)
