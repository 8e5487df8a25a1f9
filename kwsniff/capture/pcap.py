"""pcap files (https://www.ietf.org/archive/id/draft-ietf-opsawg-pcap-03.html): both byte orders, microseconds
and nanoseconds, and the variant with longer record headers of old Linux systems.

A file is a chain: each record says how long it is. Where the chain breaks, a header no writer writes turns
up (`_impossible`); reading goes on at the next place from which several headers in a row are plausible. The
record before the break may be the damaged one: if the chain found starts within it, it is dropped.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kwsniff.capture.error import CaptureError
from kwsniff.capture.reader import MAX_CAPLEN, MAX_SNAPLEN, Reader, Window
from kwsniff.config import Config
from kwsniff.native.rowcopies import joined
from kwsniff.net.packets import Bytes, CaptureTotals, Integers, Mask, PacketBlock, gather, number
from kwsniff.net.runner import compiled, follow_records

FILE_HEADER = 24
_MICRO, _NANO, _MODIFIED = 0xA1B2C3D4, 0xA1B23C4D, 0xA1B2CD34
_RECORD_HEADER = {_MICRO: 16, _NANO: 16, _MODIFIED: 24}
MAGICS = {struct.pack(order + "I", magic): (order, magic) for magic in _RECORD_HEADER for order in ("<", ">")}

CHAIN = 4
"""Plausible record headers in a row that make a place the start of records."""
MAX_JUMP = 30 * 86_400
"""Seconds between the last packet before damage and the first behind it."""
SEARCH_STEP = 1 << 18


def record_starts(data: Bytes, at: int, end: int, order: str, header: int) -> tuple[list[int], int]:
    """Follow the chain of records from `at`: the offsets of all complete ones, and where it goes on.

    This is the one loop over all packets of a file. It looks at nothing but the captured length; what else a
    header holds is checked for all of them at once. Compiled it is `kwsniff.net.layers.follow_records`.
    """
    captured_length = struct.Struct(order + "8xI").unpack_from
    starts: list[int] = []
    append = starts.append
    last = end - header
    buffer = data.data
    while at <= last:
        append(at)
        at += captured_length(buffer, at)[0] + header
    if starts and at > end:
        at = starts.pop()
    return starts, at


class PcapReader(Reader):
    """Reads one pcap file."""

    def __init__(self, window: Window, capture: str, config: Config, totals: CaptureTotals) -> None:
        super().__init__(window, capture, config, totals)
        if window.size < FILE_HEADER:
            raise CaptureError(f"{capture}: ends inside its file header")
        self._order, magic = MAGICS[window.data[:4].tobytes()]
        fields = struct.unpack_from(self._order + "IHHiIII", window.data.data)
        self._header = _RECORD_HEADER[magic]
        self._nanoseconds = 1 if magic == _NANO else 1000
        self._limit = max(MAX_CAPLEN, fields[5] if fields[5] <= MAX_SNAPLEN else 0)
        self._linktype = fields[6] & 0xFFFF  # the upper bits say how long the frame check sequence is
        names = ("sec", "fraction", "caplen", "origlen")
        self._layout = np.dtype([(name, self._order + "u4") for name in names])

    def blocks(self) -> Iterator[PacketBlock]:
        """See `Reader.blocks`."""
        at, window = FILE_HEADER, self._window
        while True:
            offsets, stop = self._chain(at)
            headers = gather(window.data, self._layout, offsets)
            good, broken = self._good(headers, offsets, stop)
            if broken is not None:
                good, broken, at = self._around_damage(headers, offsets, good, broken)
            yield from self._records(offsets[:good], headers[:good])
            if broken is not None:
                at = self._resume(broken, at)
            elif not window.at_end:
                need = self._size_at(stop) if stop + self._header <= window.size else 0
                window.move(stop, need)
                at = 0
                if window.dry:
                    yield self._nothing()
            else:
                break
        yield from self._end(stop, "a packet")

    def _chain(self, at: int) -> tuple[Integers, int]:
        """Where the complete records from `at` on begin, and where the chain goes on."""
        window = self._window
        if compiled():
            return follow_records(window.data, at, window.size, self._header, big=self._order == ">")
        starts, stop = record_starts(window.data, at, window.size, self._order, self._header)
        return np.array(starts, np.int64), stop

    def _size_at(self, at: int) -> int:
        return self._header + int(gather(self._window.data, self._layout, np.array([at]))["caplen"][0])

    def _records(self, offsets: Integers, headers: NDArray[Any]) -> Iterator[PacketBlock]:
        time_ns = number(headers["sec"]) * 1_000_000_000 + number(headers["fraction"]) * self._nanoseconds
        return self._cut(
            offsets + self._header,
            number(headers["caplen"]),
            number(headers["origlen"]),
            time_ns,
            np.full(len(offsets), self._linktype, np.int64),
        )

    # Damage

    def _good(self, headers: NDArray[Any], offsets: Integers, stop: int) -> tuple[int, int | None]:
        """How many records to trust, and where the chain breaks, if it does."""
        count = len(offsets)
        if stop + self._header <= self._window.size:  # with the header of the record that is not complete
            offsets = np.append(offsets, stop)
            headers = joined([headers, gather(self._window.data, self._layout, offsets[-1:])])
        impossible = self._impossible(headers)
        if impossible.any():
            good = int(impossible.argmax())
            return good, int(offsets[good])
        good = self._until_time_jumps(headers, offsets)
        if good < len(offsets):
            return good, int(offsets[good])
        return count, stop if self._goes_on_inside(offsets[:count], stop) else None

    def _impossible(self, headers: NDArray[Any]) -> Mask:
        """No writer writes such a header: zeros only (a hole in the file), or a field far out of range."""
        zeros = (headers["sec"] == 0) & (headers["caplen"] == 0) & (headers["origlen"] == 0)
        result: Mask = zeros | (headers["caplen"] > self._limit) | (headers["fraction"] >= 1_000_000_000)
        return result

    def _until_time_jumps(self, headers: NDArray[Any], offsets: Integers) -> int:
        """How many records to trust in a chain that goes on, but through bytes that are no headers.

        Time gives it away, if headers with likely times stand beside the chain.
        """
        seconds = number(headers["sec"])
        if not len(seconds):
            return 0
        known = int(seconds[0]) if self._last_time_ns is None else self._last_time_ns // 1_000_000_000
        jumps = np.abs(np.diff(seconds, prepend=known)) > MAX_JUMP
        if not jumps.any():
            return len(offsets)
        first = int(jumps.argmax())
        self._last_time_ns = (int(seconds[first - 1]) if first else known) * 1_000_000_000
        found, sure = self._find(int(offsets[max(first - 1, 0)]) + 1)
        return first if sure and found not in offsets else len(offsets)

    def _goes_on_inside(self, offsets: Integers, stop: int) -> bool:
        """Whether a record that seems to reach beyond the end of the file has records inside it."""
        if not self._window.at_end or stop >= self._window.size:
            return False
        return self._find(int(offsets[-1]) + 1 if len(offsets) else stop + 1)[1]

    def _plausible(self, sec: Any, fraction: Any, caplen: Any, origlen: Any) -> Any:
        """A header just as most writers write it: what is looked for when the chain is lost."""
        common = (caplen <= self._limit) & (caplen > 0) & (origlen >= caplen) & (origlen <= MAX_SNAPLEN)
        common &= fraction < 1_000_000_000 // self._nanoseconds
        if self._last_time_ns is None:
            return common & (sec > 0)
        seconds = self._last_time_ns // 1_000_000_000
        return common & (sec >= max(seconds - MAX_JUMP, 0)) & (sec <= seconds + MAX_JUMP)

    def _around_damage(
        self, headers: NDArray[Any], offsets: Integers, good: int, broken: int
    ) -> tuple[int, int, int]:
        """How many records before the break to keep, where it begins then, and where to go on.

        The last is -1 if there is no such place in this window.
        """
        if good:
            self._last_time_ns = int(headers["sec"][0]) * 1_000_000_000
        while good > 1 and not self._plausible(*headers[good - 1].tolist()):
            good -= 1
            broken = int(offsets[good])
        found, sure = self._find(int(offsets[good - 1]) + 1 if good else broken)
        if good and sure and found < broken:
            good -= 1
            broken = int(offsets[good])
        return good, broken, found if sure else -1

    def _resume(self, broken: int, found: int) -> int:
        """Note what is skipped; search the windows that follow if `found` is -1, to the end of the file."""
        position = self._window.start + broken
        if found < 0:
            found, _ = self._search(broken, self._header, (CHAIN + 1) * (self._limit + self._header))
        found = self._window.size if found < 0 else found
        self._note_skipped(position, self._window.start + found - position)
        return found

    def _find(self, at: int) -> tuple[int, bool]:
        """See `Reader`; it is not sure if the window ends before `CHAIN` records were seen."""
        window = self._window
        end = window.size - self._header + 1
        maybe = -1
        for base in range(at, end, SEARCH_STEP):
            count = min(SEARCH_STEP, end - base)
            columns = (
                np.ndarray((count,), self._order + "u4", window.data, base + 4 * field, (1,))
                for field in range(4)
            )
            for hit in np.flatnonzero(self._plausible(*columns)).tolist():
                is_chain = self._is_chain(base + hit)
                if is_chain:
                    return base + hit, True
                if is_chain is None and maybe < 0:
                    maybe = base + hit
                    if not window.at_end:
                        return maybe, False
        return maybe, False

    def _is_chain(self, at: int) -> bool | None:
        """Whether records start at `at`; None if the window ends too early to tell."""
        for length in range(CHAIN):
            if at + self._header > self._window.size:
                ends_with_file = self._window.at_end and at == self._window.size
                return True if ends_with_file and length > 1 else None
            fields = struct.unpack_from(self._order + "IIII", self._window.data.data, at)
            if not self._plausible(*fields):
                return False
            at += self._header + fields[2]
        return True
