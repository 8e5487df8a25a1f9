"""The programs of the message versions of a run in one array, and where each begins."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kwsniff.engine.bulk.headers import FLEXIBLE_REQUEST, FLEXIBLE_RESPONSE, NAMES_CLIENT, PRODUCES
from kwsniff.spec.load import catalog
from kwsniff.spec.program import UnsuitableError, program
from kwsniff.wire import quirks
from kwsniff.wire.bodies import MET

SPEAKS_OF_MORE = {
    quirks.FIND_COORDINATOR: "what is asked for decides what the group is",
    quirks.SASL_HANDSHAKE: "tokens may follow",
    quirks.API_VERSIONS: "the response may be of another version, the request names the client",
    quirks.SASL_AUTHENTICATE: "the request names the user",
}
"""APIs that change what is known of the connection, or are not what their layout says: left out."""

Codes = NDArray[np.int32]


class Programs:
    """Instructions in one array, `code`, and in `entries` for [key, version, direction] where a program
    begins (-1: there is none), what the message has, and of the request what its header has.

    Writing the programs of all versions takes a while, and an input has few of them. So a program is added
    when the exact path has met its version: the kernels leave a version without one to it.
    """

    def __init__(self) -> None:
        apis = catalog().apis
        versions = max(api.max_version for api in apis.values()) + 1
        self.entries = np.full((max(apis) + 1, versions, 2, 3), -1, np.int32)
        self._words: list[int] = []
        self._learnt = 0
        self.code = np.zeros(4, np.int32)

    def learn(self) -> None:
        """Add the versions that the exact path has met since."""
        if self._learnt == len(MET):
            return
        for key, version in MET[self._learnt :]:
            self.add(key, version)
        self._learnt = len(MET)

    def add(self, key: int, version: int) -> None:
        """Add one version, if it can have a program."""
        if key in SPEAKS_OF_MORE:
            return
        api = catalog().api(key)
        try:
            programs = [program(api.message(direction).at(version)) for direction in ("request", "response")]
        except UnsuitableError:
            return
        header = api.request_header_version(version)
        traits = (NAMES_CLIENT if header >= 1 else 0) | (FLEXIBLE_REQUEST if header >= 2 else 0)
        traits |= FLEXIBLE_RESPONSE if api.response_header_version(version) >= 1 else 0
        traits |= PRODUCES if key == quirks.PRODUCE else 0
        for direction, found in enumerate(programs):
            self.entries[key, version, direction] = len(self._words), found.flags, traits
            self._words.extend(found.code)
        self.code = np.array(self._words, np.int32)


def known_versions() -> NDArray[np.int64]:
    """Lowest and highest version of each API, by key; where there is none, no version fits."""
    apis = catalog().apis
    found = np.tile(np.array([0, -1]), (max(apis) + 1, 1))
    for key, api in apis.items():
        found[key] = api.min_version, api.max_version
    return found
