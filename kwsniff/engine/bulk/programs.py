"""The programs of all messages in one array, and where each begins."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from kwsniff.engine.bulk.headers import FLEXIBLE_REQUEST, FLEXIBLE_RESPONSE, NAMES_CLIENT, PRODUCES
from kwsniff.spec.load import catalog
from kwsniff.spec.program import UnsuitableError, program
from kwsniff.wire import quirks

SPEAKS_OF_MORE = {
    quirks.FIND_COORDINATOR: "what is asked for decides what the group is",
    quirks.SASL_HANDSHAKE: "tokens may follow",
    quirks.API_VERSIONS: "the response may be of another version, the request names the client",
    quirks.SASL_AUTHENTICATE: "the request names the user",
}
"""APIs that change what is known of the connection, or are not what their layout says: left out."""

Codes = NDArray[np.int32]


@cache
def code_and_entries() -> tuple[Codes, Codes]:
    """All instructions, and for [key, version, direction] where the program begins (-1: there is none), what
    the message has, and of the request what its header has."""
    code: list[int] = []
    apis = {key: api for key, api in catalog().apis.items() if key not in SPEAKS_OF_MORE}
    versions = max(api.max_version for api in apis.values()) + 1
    entries = np.full((max(apis) + 1, versions, 2, 3), -1, np.int32)
    for key, api in apis.items():
        for version in api.versions:
            try:
                programs = [
                    program(api.message(direction).at(version)) for direction in ("request", "response")
                ]
            except UnsuitableError:
                continue
            header = api.request_header_version(version)
            traits = (NAMES_CLIENT if header >= 1 else 0) | (FLEXIBLE_REQUEST if header >= 2 else 0)
            traits |= FLEXIBLE_RESPONSE if api.response_header_version(version) >= 1 else 0
            traits |= PRODUCES if key == quirks.PRODUCE else 0
            for direction, found in enumerate(programs):
                entries[key, version, direction] = len(code), found.flags, traits
                code.extend(found.code)
    return np.array(code, np.int32), entries


def known_versions() -> NDArray[np.int64]:
    """Lowest and highest version of each API, by key; where there is none, no version fits."""
    apis = catalog().apis
    found = np.tile(np.array([0, -1]), (max(apis) + 1, 1))
    for key, api in apis.items():
        found[key] = api.min_version, api.max_version
    return found
