"""Working ahead in a thread changes nothing but when the work is done."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from traceback import walk_stack
from types import FrameType
from typing import Any

import pytest

from kwsniff.rows import prefetch
from kwsniff.rows.prefetch import prefetched

FILES = prefetch.__file__, threading.__file__
TraceFunction = Callable[[FrameType, str, Any], Any]


def test_the_same_items_in_the_same_order() -> None:
    assert list(prefetched(range(1000))) == list(range(1000))
    assert list(prefetched([])) == []


def test_what_the_source_raises_comes_after_the_items_before() -> None:
    def source() -> Iterator[int]:
        yield from range(3)
        raise ValueError("the fourth")

    items = prefetched(source())
    assert [next(items) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="the fourth"):
        next(items)


def test_it_works_ahead_by_its_depth_and_no_further() -> None:
    made = []
    third, go_on = threading.Event(), threading.Event()

    def source() -> Iterator[int]:
        for item in range(10):
            made.append(item)
            if item == 2:
                third.set()
                go_on.wait(5)
            yield item

    items = prefetched(source(), depth=2)
    assert next(items) == 0
    assert third.wait(5)
    go_on.set()
    threads = [thread for thread in threading.enumerate() if thread.name == "ahead"]
    threads[0].join(0.3)  # as far as it will get: one handed out, two made ahead
    assert made == [0, 1, 2]
    assert list(items) == list(range(1, 10))


def test_closing_ends_the_thread_and_closes_the_source() -> None:
    closed = threading.Event()

    def source() -> Iterator[int]:
        try:
            while True:
                yield 1
        finally:
            closed.set()

    items = prefetched(source())
    assert next(items) == 1
    items.close()  # type: ignore[attr-defined]
    assert closed.is_set()
    assert not [thread for thread in threading.enumerate() if thread.name == "ahead"]


def interrupted(after: int) -> tuple[bool, bool]:
    """Take items made ahead twice over, with a KeyboardInterrupt after so many instructions, as Ctrl-C raises
    it between any two; whether it came to that, and whether it ended."""
    left, came = after, False

    def trace(frame: FrameType, event: str, _: object) -> TraceFunction | None:
        nonlocal left, came
        callers = [each.f_code.co_name for each, _ in walk_stack(frame)]
        if frame.f_code.co_filename not in FILES or "start" in callers or "join" in callers:
            return None  # what the library does there is its own
        frame.f_trace_opcodes = True
        if event == "opcode":
            left -= 1
            if left == 0:
                came = True
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    def consume() -> None:
        items = prefetched(prefetched(range(3)))
        sys.settrace(trace)
        with suppress(KeyboardInterrupt), closing(items):
            for _ in items:
                pass
        sys.settrace(None)

    consumer = threading.Thread(target=consume, daemon=True)
    consumer.start()
    consumer.join(10)
    return came, not consumer.is_alive()


def test_an_interrupt_between_any_two_instructions_is_no_deadlock() -> None:
    for after in range(1, 10_000):
        came, ended = interrupted(after)
        assert ended, after
        if not came:
            break
    assert after > 50
