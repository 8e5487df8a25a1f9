"""Whole bodies to dicts: the decoder for whoever has bytes in hand."""

from __future__ import annotations

from typing import Any

from kwsniff.binary import DecodeError
from kwsniff.spec.compile import FullDecoder, data_decoder, decoder


def decode_body(api_key: int, api_version: int, direction: str, body: bytes) -> dict[str, Any]:
    """Decodes one request or response body, without its header.

    Args:
        api_key: number of the API, as in the published protocol guide.
        api_version: version of the request, and so of its response.
        direction: `request` or `response`.
        body: all bytes behind the header.

    Returns:
        Fields by the names of `dissectors/`: uuid as hyphenated hexadecimal, bytes and records as bytes,
        null as None. Tagged fields that are absent are left out, unknown ones ignored.

    Raises:
        DecodeError: the body is not what the protocol says, or `unknown_api`, `unknown_version`.
        ValueError: another direction.
    """
    return whole(decoder(api_key, api_version, direction), body)


def decode_data(name: str, version: int, body: bytes) -> dict[str, Any]:
    """Decodes a data message such as `OffsetCommitValue`, without the version that stands before it.

    Raises:
        DecodeError: as `decode_body`.
        KeyError: no data message of that name.
    """
    return whole(data_decoder(name, version), body)


def whole(decode: FullDecoder, body: bytes) -> dict[str, Any]:
    """All fields of a body that ends where its last field does. Raises DecodeError."""
    fields, pos = decode(body, 0, len(body))
    if pos < len(body):
        raise DecodeError("trailing_bytes", "", pos)
    return fields
