"""Decoders made on demand: Python source for one message at one version, compiled and kept.

The source is registered in `linecache`, so that tracebacks and debuggers show it; `source` returns it.
"""

from __future__ import annotations

import linecache
import struct
from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

from kwsniff.config import MAX_ELEMENTS
from kwsniff.spec import codegen
from kwsniff.spec.binary import DecodeError, uvarint
from kwsniff.spec.codegen import CodeWriter, FullWriter
from kwsniff.spec.interpret import interpret
from kwsniff.spec.load import catalog
from kwsniff.spec.model import Layout

FullDecoder = Callable[..., tuple[dict[str, Any], int]]

_HELPERS: dict[str, Any] = {
    "MalformedError": codegen.MalformedError,
    "MAX_ELEMENTS": MAX_ELEMENTS,
    "TooManyError": codegen.TooManyError,
    "SMALL": codegen.SMALL,
    "Refused": (ValueError, IndexError, struct.error),
    "skip_tags": codegen.skip_tags,
    "tail": codegen.tail,
    "unpack_from": struct.unpack_from,
    "uuid_text": codegen.uuid_text,
    "uvarint": uvarint,
}


@cache
def decoder(api_key: int, version: int, direction: str) -> FullDecoder:
    """The decoder of one message at one version.

    It takes a buffer, the position of the body in it (behind the header), the exclusive end of the message
    and, if the default is not right, how many array elements it may have, and returns the fields by name with
    the position behind the last one, which may be less than `end`. It raises `DecodeError` and nothing else;
    offsets count from the body's start. The buffer may go on behind `end`. `bytes` are fastest, other buffers
    are copied first.

    Raises:
        DecodeError: `unknown_api` or `unknown_version`.
        ValueError: another direction than `request` and `response`.
    """
    return compile_layout(layout(api_key, version, direction))


@cache
def data_decoder(name: str, version: int) -> FullDecoder:
    """As `decoder`, for a data message.

    Raises:
        DecodeError: `unknown_version`.
        KeyError: no data message of that name.
    """
    message = catalog().data(name)
    if version not in message.versions:
        raise DecodeError("unknown_version")
    return compile_layout(message.at(version))


def layout(api_key: int, version: int, direction: str) -> Layout:
    """The layout of a request or response; raises as `decoder` does."""
    api = catalog().apis.get(api_key)
    if api is None:
        raise DecodeError("unknown_api")
    if version not in api.versions:
        raise DecodeError("unknown_version")
    return api.message(direction).at(version)


def source(layout: Layout) -> str:
    """The Python source of a decoder."""
    return _text(FullWriter(layout))


def _text(writer: CodeWriter) -> str:
    writer.depth = 2
    writer.body()
    head = [
        "def decode(buf, pos, end, left=MAX_ELEMENTS):",
        "    start = pos",
        "    if buf.__class__ is not bytes:",
        "        buf = bytes(buf[:end])",
        "    try:",
    ]
    foot = ["    except Refused as error:", "        raise explain(error, buf, start, end) from None"]
    return "\n".join([*head, *writer.lines, *foot, ""])


def compile_layout(layout: Layout) -> FullDecoder:
    """Writes and compiles the decoder of a layout."""
    return compile_writer(FullWriter(layout), "full")


def compile_writer(
    writer: CodeWriter, projection: str, own: Mapping[str, Any] = MappingProxyType({})
) -> Callable[..., Any]:
    """Compiles what a writer writes; `own` are names that its source uses besides those of every decoder."""
    text, layout = _text(writer), writer.layout
    file = f"<kwsniff {layout.title} {projection}>"
    names = {**_HELPERS, **own, **writer.names, "explain": _explainer(layout, projection)}
    exec(compile(text, file, "exec"), names)  # the source is our own, made from a checked model
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    found: Callable[..., Any] = names["decode"]
    found.__doc__ = f"{layout.title}, {projection} projection."
    return found


def _explainer(layout: Layout, projection: str) -> Callable[[Exception, bytes, int, int], DecodeError]:
    def explain(error: Exception, buf: bytes, start: int, end: int) -> DecodeError:
        """Decodes again with the interpreter, which says what is wrong and where."""
        if isinstance(error, codegen.TooManyError):
            return DecodeError("element_limit")
        try:
            interpret(layout, buf, start, end, facts=projection == "facts")
        except DecodeError as found:
            return found
        return DecodeError("truncated_body", repr(error))

    return explain


# Whole bodies to dicts: the decoder for whoever has bytes in hand.


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
