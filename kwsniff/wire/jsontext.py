"""JSON text of decoded values, with the three things that JSON lacks: bytes, NaN and infinities.

The standard encoder with one hook for bytes: see docs/design.md for how others compare.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from json import JSONEncoder
from typing import Any


def _show(value: object) -> object:
    return {"base64": b64encode(_as_bytes(value)).decode()}


def _count(value: object) -> object:
    return {"bytes": len(_as_bytes(value))}


def _as_bytes(value: object) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise TypeError(f"{type(value).__name__} in a decoded body")


def _encoder(hook: Callable[[object], object]) -> JSONEncoder:
    # A decoded body cannot contain itself, so the check for that is left out.
    return JSONEncoder(
        default=hook, ensure_ascii=False, check_circular=False, allow_nan=False, separators=(",", ":")
    )


_SHOWING, _COUNTING = _encoder(_show), _encoder(_count)


def encode(body: object, showing: bool) -> str:
    """`body` on one line; bytes left in it by size, or in full if `showing`."""
    encoder = _SHOWING if showing else _COUNTING
    try:
        return encoder.encode(body)
    except ValueError:
        return encoder.encode(_finite(body))


def _finite(value: Any) -> Any:
    """JSON has no infinities and NaN: they become text."""
    if isinstance(value, float) and not -1e309 < value < 1e309:
        return str(value)
    if isinstance(value, dict):
        return {name: _finite(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_finite(inner) for inner in value]
    return value


def payload(data: bytes | None) -> str | dict[str, str] | None:
    """Bytes of a record as JSON: text if all of it can be read, else base64."""
    if data is None:
        return None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(data).decode()}
    if text.isprintable() or text.translate(_LAYOUT).isprintable():
        return text
    return {"base64": b64encode(data).decode()}


_LAYOUT = dict.fromkeys(map(ord, "\t\n\r"))
