"""Single bodies, and dissectors of one's own."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

from kwsniff.binary import DecodeError
from kwsniff.similar import suggestion
from kwsniff.spec import body as decoders
from kwsniff.spec.compile import compile_layout
from kwsniff.spec.load import Api, Catalog, catalog, catalog_with, use


def decode_body(
    api_key: int | str,
    api_version: int,
    direction: str,
    body: bytes,
    *,
    dissectors: str | os.PathLike[str] | None = None,
) -> dict[str, Any]:
    """Decode one request or response body, without its header.

    Args:
        api_key: number of the API, or its name, as in the protocol guide of Apache Kafka.
        api_version: version of the request, and so of its response.
        direction: ``request`` or ``response``.
        body: all bytes behind the header.
        dissectors: a folder of ``.kdef`` files that are used besides the installed ones, for this body only.

    Returns:
        Fields by the names of ``dissectors/``: uuid as hyphenated hexadecimal, bytes and records as bytes,
        null as None. Tagged fields that are absent are left out, unknown ones ignored.

    Raises:
        DecodeError: the body is not what the protocol says, or `unknown_api`, `unknown_version`.
        ValueError: another direction.

    The answer to ApiVersions v0 (an error code, then key, least and greatest version of each API):

        >>> import kwsniff
        >>> body = bytes.fromhex("0000" "00000001" "0012" "0000" "0004")
        >>> kwsniff.decode_body("ApiVersions", 0, "response", body)
        {'error_code': 0, 'api_keys': [{'api_key': 18, 'min_version': 0, 'max_version': 4}]}
        >>> kwsniff.decode_body("ApiVersion", 0, "response", body)
        Traceback (most recent call last):
        ...
        kwsniff.binary.DecodeError: unknown_api at ApiVersion (did you mean ApiVersions?)
    """
    if dissectors is None:
        return decoders.decode_body(_api(catalog(), api_key).key, api_version, direction, body)
    found = _api(catalog_with(Path(dissectors)), api_key)
    if api_version not in found.versions:
        raise DecodeError("unknown_version")
    return decoders.whole(_decoder(found, api_version, direction), body)


def _api(known: Catalog, api: int | str) -> Api:
    try:
        return known.api(api) if isinstance(api, int) else known.named(api)
    except KeyError:
        names = [each.name for each in known.apis.values()]
        raise DecodeError("unknown_api", f"{api}{suggestion(str(api), names)}") from None


@cache
def _decoder(api: Api, version: int, direction: str) -> Any:
    return compile_layout(api.message(direction).at(version))


def use_dissectors(folder: str | os.PathLike[str]) -> None:
    """Decode with the ``.kdef`` files of a folder besides the installed ones, in this process and those that
    it starts.

    A file for an API that is installed takes its place: copy it, and change what is different in your
    brokers. docs/dissectors.md has the notation. The environment variable ``KWSNIFF_DISSECTORS`` does the
    same, also for commands. Decoders are made from dissectors once, so it comes before anything is decoded.

    Args:
        folder: a directory with at least one ``.kdef`` file.

    Raises:
        DissectorError: a file is wrong; the message names file and line.
        RuntimeError: something was decoded before.
    """
    use(Path(folder))
