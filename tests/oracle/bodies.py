"""From the bytes of a message to what an event says of it, for every API and version, with the load."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from kwsniff.config import Config
from kwsniff.rows.events import MAX_TOPIC
from kwsniff.spec import load
from kwsniff.spec.binary import DecodeError
from kwsniff.spec.compile import decoder
from kwsniff.spec.load import Api, catalog
from kwsniff.spec.model import Field
from kwsniff.spec.render import render
from tests.oracle.decoder import FactsDecoder, facts_decoder
from tests.oracle.facts import Facts
from tests.oracle.records import RecordsSummary, summarize


@dataclass(frozen=True, slots=True)
class Codec:
    """How to read the messages of one API at one version."""

    api_key: int
    version: int
    request: FactsDecoder
    response: FactsDecoder
    request_records: bool
    """The request has record data."""
    response_records: bool
    may_downgrade: bool
    """The response may be of version 0 whatever was asked for."""


PartitionRow = tuple[str | None, str | None, int, int | None, int | None, int | None, int | None, str | None]
"""topic, topic_id, partition, error_code, base_offset, records, bytes, codec."""


class Body(NamedTuple):
    """What one body says."""

    facts: Facts
    partitions: list[PartitionRow] | None
    record_count: int | None
    record_bytes: int | None
    json: str | None
    anomalies: list[tuple[str, str]]
    """Codes and details of what was wrong, although the body could be decoded."""


def codec_of(api_key: int, version: int) -> Codec | str:
    """The codec of an API version, or the anomaly code that says why there is none."""
    found = _CODECS.get((api_key, version))
    if found is not None:
        return found
    api = catalog().apis.get(api_key)
    if api is None:
        return "unknown_api"
    if not api.min_version <= version <= api.max_version:
        return "unknown_version"
    return _CODECS.setdefault((api_key, version), _made(api, api_key, version))


_CODECS: dict[tuple[int, int], Codec] = {}
"""Of known API versions only: of others there are four thousand million."""


def _made(api: Api, api_key: int, version: int) -> Codec:
    return Codec(
        api_key,
        version,
        facts_decoder(api_key, version, "request"),
        facts_decoder(api_key, version, "response"),
        request_records=_has_records(api.request.fields),
        response_records=_has_records(api.response.fields),
        may_downgrade=api_key == load.API_VERSIONS and version > 0,
    )


def _has_records(fields: tuple[Field, ...]) -> bool:
    return any("records" in field.roles or _has_records(field.fields) for field in fields)


def read(codec: Codec, direction: str, data: bytes, pos: int, end: int, config: Config) -> Body:
    """Decode the body of a request or response that lies in `data` from `pos` to `end`.

    Raises:
        DecodeError: with path and offset, if the bytes are not what the layout says.
    """
    is_request = direction == "request"
    if codec.may_downgrade and not is_request and load.is_downgraded(data, pos, end):
        return _read_downgraded(codec, data, pos, end, config)
    decode = codec.request if is_request else codec.response
    facts, after = decode(data, pos, end, config.max_elements)
    anomalies = (
        [] if after == end else [("trailing_bytes", f"{end - after} bytes after the {direction} body")]
    )
    partitions, count, size = None, None, None
    if codec.request_records if is_request else codec.response_records:
        partitions, count, size = _record_rows(facts, data, is_request, config, anomalies)
    json = None
    if config.full:
        full, _ = decoder(codec.api_key, codec.version, direction)(data, pos, end, config.max_elements)
        json = render(codec.api_key, codec.version, direction, full, config, anomalies)
    return Body(facts, partitions, count, size, json, anomalies)


def _read_downgraded(codec: Codec, data: bytes, pos: int, end: int, config: Config) -> Body:
    """An ApiVersions response that says the version is not supported; its error code is all that counts."""
    v0 = codec_of(codec.api_key, 0)
    assert isinstance(v0, Codec)
    try:
        return read(v0, "response", data, pos, end, config)
    except DecodeError as error:
        # librdkafka's mock cluster writes a short array here.
        facts = Facts(load.UNSUPPORTED_VERSION, 1, *[None] * 11)
        return Body(facts, None, None, None, None, [(error.code, f"response {error.path}")])


def rows(body: Body | None) -> list[PartitionRow] | None:
    """The partitions of a body; None if its message has none."""
    if body is None or body.partitions is not None or body.facts.partitions is None:
        return None if body is None else body.partitions
    return [each[:5] + _NO_RECORDS for each in body.facts.partitions]


_Tail = tuple[int | None, int | None, str | None]
_NO_RECORDS: _Tail = (None, None, None)
_EMPTY_RECORDS: _Tail = (0, 0, None)


def _record_rows(
    facts: Facts, data: bytes, is_request: bool, config: Config, anomalies: list[tuple[str, str]]
) -> tuple[list[PartitionRow], int | None, int]:
    """Rows of the partitions of a body with record data, and the sums of records (None if a compressed
    wrapper hides their number) and of record bytes."""
    rows: list[PartitionRow] = []
    count: int | None = 0
    size = 0
    for each in facts.partitions or ():
        start, end = each[5], each[6]
        if start == end or start < 0:
            nothing: _Tail = _EMPTY_RECORDS if start >= 0 else _NO_RECORDS
            rows.append(each[:5] + nothing)
            continue
        summary = summarize(data, start, end, verify_crc=config.verify_crc)
        topic, topic_id, partition, error_code, base_offset = each[:5]
        if not is_request and base_offset is None:  # a producer's batches count from 0, not from an offset
            base_offset = summary.base_offset
        codec = summary.codec if summary.batches else None
        found = summary.records
        rows.append((topic, topic_id, partition, error_code, base_offset, found, summary.bytes, codec))
        size += summary.bytes
        count = None if count is None or found is None else count + found
        if summary.crc_mismatches or summary.malformed or (summary.partial and is_request):
            _note_damage(
                summary, f"{(topic or topic_id or '')[:MAX_TOPIC]}-{partition}", is_request, anomalies
            )
    return rows, count, size


def _note_damage(
    summary: RecordsSummary, partition: str, is_request: bool, anomalies: list[tuple[str, str]]
) -> None:
    if summary.crc_mismatches:
        anomalies.append(("crc_mismatch", f"{summary.crc_mismatches} of {partition}"))
    if summary.partial and is_request:  # a Fetch response may end inside a batch
        anomalies.append(("batch_malformed", f"batch of {partition} cut short"))
    if summary.malformed:
        anomalies.append((summary.malformed, f"record data of {partition}"))
