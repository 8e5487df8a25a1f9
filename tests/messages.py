"""The messages of captures as the engine takes them: frames, bodies that it reads, and which make a call.

The kernels are interpreted, and the functions that take a frame, read a body and make a call are listened to.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pytest

from kwsniff.capture.source import segments
from kwsniff.config import Config
from kwsniff.kernel import conversation, outcomes, requests, responses
from kwsniff.kernel.engine import Engine
from kwsniff.kernel.numbers import OK, REFUSED
from kwsniff.segments import segment_columns


class Frame(NamedTuple):
    """A frame with its length prefix."""

    data: bytes
    is_request: bool


class Said(NamedTuple):
    """The body of a message of a known version."""

    key: int
    version: int
    direction: str
    data: bytes


class Listener:
    """Notes what the engine takes while it is listened to."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.bodies: list[Said] = []
        self.pairs: list[tuple[Said, Said | None]] = []
        """Bodies of requests that could be decoded, with those of their responses."""
        self._row = -1
        self._last: Said | None = None
        self._asked: dict[int, Said | None] = {}

    def listen(self, patch: pytest.MonkeyPatch) -> None:
        """Stand between the functions of the conversation."""
        heard = ((requests, "read"), (requests, "read_request"), (requests, "keep"), (responses, "read"),
                 (responses, "read_response"), (outcomes, "join"))  # fmt: skip
        for module, name in heard:
            patch.setattr(module, name, self._between(name, getattr(module, name)))
        for name, is_request in (("take_request_frame", True), ("take_response_frame", False)):
            patch.setattr(conversation, name, self._taking(getattr(conversation, name), is_request))

    def _between(self, name: str, inner: Any) -> Any:
        def function(t: Any, *given: Any) -> int:
            if name.startswith("read_"):
                self._row, self._last = given[0], None
            elif name == "join":
                self._call(given[0], bool(t.facts[1].clean))
            code = int(inner(t, *given))
            if name == "read":
                self._body(t, code, *given)
            elif name == "keep":
                self._asked[given[0]] = self._last if t.facts[0].clean else None
            return code

        return function

    def _body(self, t: Any, code: int, data: Any, pos: int, end: int, entry: int, is_request: bool) -> None:
        request = t.requests[self._row]
        if request.layout >= 0 and code in (OK, REFUSED):
            direction = "request" if is_request else "response"
            said = Said(int(request.key), int(request.version), direction, bytes(data[pos:end]))
            self._last = said
            self.bodies.append(said)

    def _call(self, row: int, answered: bool) -> None:
        asked = self._asked.get(row)
        if asked is not None:
            self.pairs.append((asked, self._last if answered else None))

    def _taking(self, inner: Any, is_request: bool) -> Any:
        def function(t: Any, data: Any) -> int:
            frame = t.frame[0]
            found = Frame(bytes(data[frame.start : frame.end]), is_request)
            code = int(inner(t, data))
            if code == OK:
                self.frames.append(found)
            return code

        return function


def listened(paths: Sequence[str], config: Config | None = None) -> Iterator[Listener]:
    """After each batch of segments: what the engine has taken so far."""
    listener, config = Listener(), config or Config(kernels="never")
    with pytest.MonkeyPatch.context() as patch:
        listener.listen(patch)
        engine = Engine(config, compiled=False)
        for batch in segments(paths, config):
            for _ in engine.feed(segment_columns(batch)):
                pass
            yield listener
        for _ in engine.finish():
            pass
        yield listener


def all_of(paths: Sequence[str]) -> Listener:
    """Everything that captures hold."""
    *_, last = listened(paths)
    return last
