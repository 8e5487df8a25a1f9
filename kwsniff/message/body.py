"""The body of one frame as JSON, as `kwsniff decode --full` has it."""

from __future__ import annotations

from kwsniff.binary import DecodeError
from kwsniff.config import Config
from kwsniff.spec.compile import decode_body
from kwsniff.spec.interpret import BodyReader
from kwsniff.spec.load import catalog
from kwsniff.wire.render import render

LENGTH = 4
"""Bytes before a frame that say how long it is."""


def body_json(frame: bytes, api_key: int, version: int, direction: str) -> str | None:
    """The JSON text of the body of a request or response frame, None if it cannot be decoded."""
    api = catalog().apis.get(api_key)
    if api is None or version not in api.versions:
        return None
    request = direction == "request"
    head = catalog().data("RequestHeader" if request else "ResponseHeader")
    header = api.request_header_version(version) if request else api.response_header_version(version)
    layout = head.at(header)
    reader = BodyReader(frame, LENGTH, len(frame), False)
    try:
        reader.struct(layout.items, layout.flexible, "", reader.limit)
        body = decode_body(api_key, version, direction, frame[reader.pos :])
    except DecodeError:
        return None
    return render(api_key, version, direction, body, Config())
