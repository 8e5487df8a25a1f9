"""What is brought from one task to another about a pair of endpoints."""

from __future__ import annotations

import pickle
from typing import Any, Self

import zstandard

from kwsniff.engine.rows import Endpoints


class Packed:
    """Has `endpoints`, and can be made bytes."""

    __slots__ = ()
    endpoints: Endpoints

    @property
    def key(self) -> str:
        """Text that names the endpoints."""
        return ",".join(map(str, self.endpoints))

    def pack(self) -> bytes:
        """As bytes, compressed."""
        return zstandard.ZstdCompressor().compress(pickle.dumps(self, pickle.HIGHEST_PROTOCOL))

    @classmethod
    def unpack(cls, data: bytes) -> Self:
        """From bytes."""
        made: Any = pickle.loads(zstandard.ZstdDecompressor().decompress(data))
        assert isinstance(made, cls)
        return made
