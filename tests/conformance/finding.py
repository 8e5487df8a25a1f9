"""One difference between the dissectors and a release."""

from __future__ import annotations

from typing import NamedTuple

ANY_VERSION = -1


class Finding(NamedTuple):
    """What a release says and the dissectors don't, or say otherwise."""

    where: str
    """Message with its direction, such as `Fetch request`, or `error 51`."""
    what: str
    """Path of the field, or the property of the message that differs."""
    release_says: str
    kwsniff_says: str
    version: int = ANY_VERSION
    """Version of the message, if the difference is one of a version."""
