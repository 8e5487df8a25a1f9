"""What Arrow's own writers write to."""

from __future__ import annotations

from typing import IO


class Sink:
    """A binary stream that knows how far it has come, as Arrow's writers ask and a pipe cannot tell."""

    closed = False

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._position = 0

    def write(self, data: bytes) -> int:
        if not self._stream.closed:  # a writer that is given up writes its footer when it is finalized
            self._stream.write(data)
        self._position += len(data)
        return len(data)

    def tell(self) -> int:
        return self._position

    def flush(self) -> None:
        self._stream.flush()

    def close(self) -> None:
        """The stream belongs to the caller."""

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False
