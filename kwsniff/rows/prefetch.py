"""An iterator that works ahead of who reads it, in a thread.

Worth it where both sides let other threads run: reading files, compiled kernels, Arrow.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from queue import SimpleQueue
from threading import Thread
from typing import TypeVar

T = TypeVar("T")


class _End:
    """The iterator ended, with what it raised or without."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


class _Room:
    """How many items may be made. A queue of tokens, because that is taken from and put to in one step: a
    semaphore or an event, written in Python, would keep its lock for ever where Ctrl-C interrupts it."""

    def __init__(self, depth: int) -> None:
        self._tokens: SimpleQueue[None] = SimpleQueue()
        self._wanted = True
        for _ in range(depth):
            self.add()

    def add(self) -> None:
        """There is room for one more."""
        self._tokens.put(None)

    def close(self) -> None:
        """No more is wanted."""
        self._wanted = False
        self.add()

    def wait(self) -> bool:
        """Wait for room; whether anything is wanted still."""
        self._tokens.get()
        return self._wanted


def prefetched(items: Iterable[T], depth: int = 1) -> Generator[T]:
    """The same items in the same order, up to `depth` of them made before they are asked for.

    What `items` raises is raised here, after the items that came before. Closing the iterator ends the
    thread as soon as it has made the item that it is at.
    """
    queue: SimpleQueue[T | _End] = SimpleQueue()
    room = _Room(depth)
    worker = Thread(target=_work, args=(items, queue, room), name="ahead", daemon=True)
    try:
        worker.start()
        while not isinstance(item := queue.get(), _End):
            room.add()
            yield item
            del item  # before the next is asked for
        if item.error is not None:
            raise item.error
    finally:
        room.close()
        if worker.is_alive():  # an interrupt may have come while it was started
            worker.join()


def _work(items: Iterable[T], queue: SimpleQueue[T | _End], room: _Room) -> None:
    """Make an item only once there is room for it: items are large."""
    iterator = iter(items)
    error = None
    try:
        while room.wait():
            try:
                item = next(iterator)
            except StopIteration:
                return
            queue.put(item)
            del item
    except BaseException as raised:
        error = raised
    finally:
        try:
            if hasattr(iterator, "close"):
                iterator.close()
        finally:
            queue.put(_End(error))
