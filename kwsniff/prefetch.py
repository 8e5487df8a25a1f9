"""An iterator that works ahead of who reads it, in a thread.

Worth it where both sides let other threads run: reading files, compiled kernels, Arrow.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import suppress
from queue import Empty, Full, Queue
from threading import Event, Thread
from typing import TypeVar

T = TypeVar("T")

PATIENCE = 0.1
"""Seconds after which a worker that waits for its reader looks whether there still is one."""


class _End:
    """The iterator ended, with what it raised or without."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


def prefetched(items: Iterable[T], depth: int = 1) -> Generator[T]:
    """The same items in the same order, up to `depth` of them made before they are asked for.

    What `items` raises is raised here, after the items that came before. Closing the iterator ends the
    thread as soon as it has made the item that it is at.
    """
    queue: Queue[T | _End] = Queue(depth)
    unwanted = Event()
    worker = Thread(target=_work, args=(items, queue, unwanted), name="ahead", daemon=True)
    worker.start()
    try:
        while not isinstance(item := queue.get(), _End):
            yield item
            del item  # before the next is asked for
        if item.error is not None:
            raise item.error
    finally:
        unwanted.set()
        with suppress(Empty):
            queue.get_nowait()
        worker.join()


def _work(items: Iterable[T], queue: Queue[T | _End], unwanted: Event) -> None:
    iterator = iter(items)
    error = None
    try:
        for item in iterator:
            if not _put(item, queue, unwanted):
                return
            del item  # before the next is made
    except BaseException as raised:
        error = raised
    finally:
        if hasattr(iterator, "close"):
            iterator.close()
    _put(_End(error), queue, unwanted)


def _put(item: T | _End, queue: Queue[T | _End], unwanted: Event) -> bool:
    """Wait for a place in the queue; false if nobody reads it any more."""
    while not unwanted.is_set():
        with suppress(Full):
            queue.put(item, timeout=PATIENCE)
            return True
    return False
