"""An iterator that works ahead of who reads it, in a thread.

Worth it where both sides let other threads run: reading files, compiled kernels, Arrow.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from queue import SimpleQueue
from threading import Event, Semaphore, Thread
from typing import TypeVar

T = TypeVar("T")


class _End:
    """The iterator ended, with what it raised or without."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


def prefetched(items: Iterable[T], depth: int = 1) -> Generator[T]:
    """The same items in the same order, up to `depth` of them made before they are asked for.

    What `items` raises is raised here, after the items that came before. Closing the iterator ends the
    thread as soon as it has made the item that it is at.
    """
    queue: SimpleQueue[T | _End] = SimpleQueue()
    room, unwanted = Semaphore(depth), Event()
    worker = Thread(target=_work, args=(items, queue, room, unwanted), name="ahead", daemon=True)
    worker.start()
    try:
        while not isinstance(item := queue.get(), _End):
            room.release()
            yield item
            del item  # before the next is asked for
        if item.error is not None:
            raise item.error
    finally:
        unwanted.set()
        room.release()
        worker.join()


def _work(items: Iterable[T], queue: SimpleQueue[T | _End], room: Semaphore, unwanted: Event) -> None:
    """Make an item only once there is room for it: items are large."""
    iterator = iter(items)
    error = None
    try:
        while True:
            room.acquire()
            if unwanted.is_set():
                return
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
