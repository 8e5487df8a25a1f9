"""Every body of the recorded samples, and every call they make, by the kernels as by `kwsniff.wire`."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from body_machine import Machine
from samples import CAPTURES, Sample
from test_bodies import check
from test_body_calls import call, calls, expected

from kwsniff.config import Config
from kwsniff.kernel.numbers import OK
from kwsniff.offline import events
from kwsniff.wire import conversation
from kwsniff.wire.bodies import Body, Codec
from kwsniff.wire.bodies import read as read_body

NAMES = sorted(path.stem for path in (CAPTURES / "expected").glob("*.json"))
DIRECTIONS = ("request", "response")
Said = tuple[int, int, str, bytes]


class Listener:
    """Notes the bytes of each body that the conversation reads, and which of them make calls."""

    def __init__(self) -> None:
        self.bodies: list[Said] = []
        self.pairs: list[tuple[Body, Body | None]] = []
        self.of: dict[int, Said] = {}
        self.kept: list[Body] = []

    def read(self, codec: Codec, direction: str, data: bytes, pos: int, end: int, config: Config) -> Body:
        said = (codec.api_key, codec.version, direction, data[pos:end])
        self.bodies.append(said)
        body = read_body(codec, direction, data, pos, end, config)
        self.of[id(body)] = said
        self.kept.append(body)
        return body

    def call(self, request: Any, answer: Body | None) -> None:
        if request.body is not None:
            self.pairs.append((request.body, answer))


def listen(name: str, monkeypatch: pytest.MonkeyPatch) -> Listener:
    listener, tell = Listener(), conversation.Conversation._call

    def told(self: Any, request: Any, frame: Any, status: str, order: int, *rest: Any) -> None:
        listener.call(request, rest[0] if rest else None)
        tell(self, request, frame, status, order, *rest)

    monkeypatch.setattr(conversation, "read", listener.read)
    monkeypatch.setattr(conversation.Conversation, "_call", told)
    for _ in events(Sample(name).paths, Config(kernels="never")):
        pass
    assert listener.bodies
    return listener


@pytest.mark.parametrize("name", NAMES)
def test_bodies_and_calls_of_a_sample_say_what_they_said(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    listener, machine = listen(name, monkeypatch), Machine()
    seen: Counter[tuple[int, int, str]] = Counter()
    for key, version, direction, data in listener.bodies:
        seen[key, version, direction] += 1
        if seen[key, version, direction] <= 30:
            check(machine, key, version, direction, data)
    for asked, answer in listener.pairs[:400]:
        key, version, _, data = listener.of[id(asked)]
        machine.read(key, version, "request", data, 0, len(data))
        assert machine.call(calls.keep, 0) == OK
        machine.row("facts", 1).clean = 0
        if answer is not None:
            data = listener.of[id(answer)][3]
            machine.read(key, version, "response", data, 0, len(data))
        store = machine.row("store")
        store.call_names = store.call_rows = store.call_resources = 0
        assert machine.call(calls.join, 0, 0) == OK
        calls.forget(machine.t, 0)
        assert call(machine, 0) == expected(asked, answer), listener.of[id(asked)]
    assert machine.row("store").words_live == 0
