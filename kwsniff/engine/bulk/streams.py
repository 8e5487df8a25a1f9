"""From segments to paired frames, compiled: the plain stretch of many connections in one pass.

Theory of operation. Each connection's segments are taken one after the other as long as they only continue
their streams: in order, whole, without control flags, without a jump in time. Payloads are joined in one
buffer, a region for each side; frames are cut as soon as they are complete, requests wait in a queue, and a
response must answer the oldest of them. At the first segment that asks for anything else (a hole, another
API version than the known ones, a correlation id out of order, …) the connection is put back to what it was
before that segment, and the rest is left to the exact path.

Invariant: what was taken is what `Connection._step` would have done, segment by segment.
"""

from __future__ import annotations

from numba import njit
from numpy.typing import NDArray

from kwsniff.engine.bulk import columns as c
from kwsniff.engine.bulk.bodies import Codes
from kwsniff.engine.bulk.numbers import Bytes, int16, int32, is_ascii, uvarint
from kwsniff.engine.bulk.texts import Ints

import numpy as np  # isort: skip

SECOND = 1_000_000_000
MASK = 0xFFFFFFFF
NAMES_CLIENT, FLEXIBLE_REQUEST, FLEXIBLE_RESPONSE, PRODUCES = 1, 2, 4, 8
"""Flags of an API version, in column 2 of its entry for requests."""

Flags = NDArray[np.bool_]


@njit(cache=True, nogil=True)
def regions(side: Flags, captured: Ints, links: Ints) -> tuple[int, int]:
    """Give each connection its regions of the buffer and of the chunk table; returns the sizes of both."""
    bytes_at = chunks_at = 0
    for index in range(len(links)):
        link = links[index]
        size_a, size_b = link[c.HELD_BYTES_A], link[c.HELD_BYTES_B]
        chunks_a, chunks_b = link[c.CHUNKS_A], link[c.CHUNKS_B]
        for row in range(link[c.BEGIN], link[c.END]):
            if captured[row] > 0:
                if side[row]:
                    size_b += captured[row]
                    chunks_b += 1
                else:
                    size_a += captured[row]
                    chunks_a += 1
        link[c.REGION_A], link[c.REGION_B] = bytes_at, bytes_at + size_a
        bytes_at += size_a + size_b
        link[c.TABLE_A], link[c.TABLE_B] = chunks_at, chunks_at + chunks_a
        chunks_at += chunks_a + chunks_b
    return bytes_at, chunks_at


@njit(cache=True)
def acks_none(buf: Bytes, pos: int, end: int, version: int) -> int:
    """1 if a Produce body says acks=0, 0 if not, -1 if that is not certain."""
    if version >= 9:
        size, pos = uvarint(buf, pos, end)
        if pos < 0:
            return -1
        pos += max(size - 1, 0)
    elif version >= 3:
        if end - pos < 2:
            return -1
        pos += 2 + max(int16(buf, pos), 0)
    if end - pos < 2:
        return -1
    return 1 if int16(buf, pos) == 0 else 0


@njit(cache=True)
def waits(queue: Ints, first: int, last: int, frames: Ints, old_ids: Ints, correlation_id: int) -> bool:
    """Whether a request with this correlation id is in the queue."""
    for at in range(last - 1, first - 1, -1):
        entry = queue[at]
        known = frames[entry, c.CORRELATION_ID] if entry >= 0 else old_ids[-1 - entry]
        if known == correlation_id:
            return True
    return False


@njit(cache=True)
def read_request(frame: Ints, buf: Bytes, programs: Codes) -> bool:
    """Read a request's header into its frame; False if anything is unusual."""
    pos, end = frame[c.START] + 4, frame[c.STOP]
    key, version = int16(buf, pos), int16(buf, pos + 2)
    if not (0 <= key < programs.shape[0] and 0 <= version < programs.shape[1]):
        return False
    if programs[key, version, 0, 0] < 0:
        return False
    traits = programs[key, version, 0, 2]
    frame[c.KEY], frame[c.VERSION], frame[c.CORRELATION_ID] = key, version, int32(buf, pos + 4)
    pos += 8
    frame[c.CLIENT_ID], frame[c.CLIENT_ID_SIZE] = pos, -1
    if traits & NAMES_CLIENT:
        if end - pos < 2:
            return False
        size = int16(buf, pos)
        pos += 2
        if size >= 0:
            if size > end - pos or not is_ascii(buf, pos, pos + size):
                return False
            frame[c.CLIENT_ID], frame[c.CLIENT_ID_SIZE] = pos, size
            pos += size
    if traits & FLEXIBLE_REQUEST:
        if pos >= end or buf[pos]:
            return False
        pos += 1
    frame[c.BODY] = pos
    frame[c.PARTNER] = c.UNPAIRED
    if traits & PRODUCES:
        none = acks_none(buf, pos, end, version)
        if none < 0:
            return False
        if none:
            frame[c.PARTNER] = c.NO_REPLY
    return True


@njit(cache=True, nogil=True)
def follow(
    side: Flags, seq: Ints, ack: Ints, acks: Flags, special: Flags, captured: Ints, time: Ints, packet: Ints,
    order: Ints, buffer: Ints, start: Ints, inline: Bytes, block: Bytes, links: Ints, held: Bytes,
    held_chunks: Ints, old_ids: Ints, programs: Codes, patience: int, max_frame: int, max_kept: int,
    max_waiting: int, buf: Bytes, chunks: Ints, frames: Ints, queue: Ints,
) -> int:  # fmt: skip
    """Follow every connection of `links` as far as it is plain; returns how many frames there are."""
    count = 0
    wanted = np.zeros(2, np.int64)
    write, read = np.zeros(2, np.int64), np.zeros(2, np.int64)
    chunk, chunk_end = np.zeros(2, np.int64), np.zeros(2, np.int64)
    last_order, cut = np.zeros(2, np.int64), np.zeros(2, np.int64)
    for index in range(len(links)):
        link = links[index]
        client, clock, gap = link[c.CLIENT], link[c.CLOCK], link[c.GAP]
        for k in range(2):
            wanted[k] = link[c.NEXT_A + k]
            last_order[k] = link[c.LAST_ORDER_A + k]
            cut[k] = 0
            region, first, size = link[c.REGION_A + k], link[c.HELD_A + k], link[c.HELD_BYTES_A + k]
            read[k], write[k] = region, region + size
            buf[region : region + size] = held[first : first + size]
            chunk[k] = chunk_end[k] = link[c.TABLE_A + k]
            for at in range(link[c.CHUNK_A + k], link[c.CHUNK_A + k] + link[c.CHUNKS_A + k]):
                chunks[chunk_end[k]] = held_chunks[at]
                chunks[chunk_end[k], c.CHUNK_START] += region
                chunk_end[k] += 1
            link[c.PACKETS_A + k] = link[c.BYTES_A + k] = 0
            link[c.ACK_A + k] = -1
        first_waiting, last_waiting = 0, link[c.WAITING]
        for at in range(last_waiting):
            queue[at] = -1 - (link[c.WAITING_FIRST] + at)
        answered = 0
        link[c.FRAME_FIRST] = count
        row = link[c.BEGIN]
        while row < link[c.END]:
            moment = time[row]
            if special[row] or moment < clock - SECOND or moment > clock + patience:
                break
            k = 1 if side[row] else 0
            size = captured[row]
            if size > 0:
                if seq[row] != wanted[k] or not link[c.SYNC_A + k]:
                    break
                if count + size // 8 + 2 > len(frames) or last_waiting + size // 12 + 2 > len(queue):
                    break
                # What to go back to if this segment is not plain.
                was = (
                    write[k], read[k], chunk[k], chunk_end[k], last_order[k], cut[k], count, first_waiting,
                    last_waiting, gap, answered,
                )  # fmt: skip
                at = write[k]
                begin = start[row]
                if buffer[row] == 0:
                    buf[at : at + size] = inline[begin : begin + size]
                else:
                    buf[at : at + size] = block[begin : begin + size]
                write[k] = at + size
                entry = chunks[chunk_end[k]]
                chunk_end[k] += 1
                entry[c.CHUNK_START], entry[c.CHUNK_PACKET] = at, packet[row]
                entry[c.CHUNK_TIME], entry[c.CHUNK_ORDER] = moment, order[row]
                plain = True
                while write[k] - read[k] >= 4:
                    pos = read[k]
                    length = int32(buf, pos)
                    end = pos + 4 + length
                    if length < (8 if k == client else 4) or length > max_frame:
                        plain = False
                        break
                    if end > write[k]:
                        plain = length + 4 <= max_kept
                        break
                    while chunk[k] + 1 < chunk_end[k] and chunks[chunk[k] + 1, c.CHUNK_START] <= pos:
                        chunk[k] += 1
                    complete = last = chunk[k]
                    while last + 1 < chunk_end[k] and chunks[last + 1, c.CHUNK_START] < end:
                        last += 1
                        if chunks[last, c.CHUNK_ORDER] > chunks[complete, c.CHUNK_ORDER]:
                            complete = last
                    frame = frames[count]
                    frame[c.CONNECTION], frame[c.SIDE], frame[c.START], frame[c.STOP] = index, k, pos, end
                    last_order[k] = max(last_order[k], chunks[complete, c.CHUNK_ORDER])
                    frame[c.ORDER] = last_order[k]
                    frame[c.FIRST_TIME] = chunks[chunk[k], c.CHUNK_TIME]
                    frame[c.LAST_TIME] = chunks[complete, c.CHUNK_TIME]
                    frame[c.PACKET] = chunks[complete, c.CHUNK_PACKET]
                    if k == client:
                        if not read_request(frame, buf, programs):
                            plain = False
                            break
                        frame[c.IN_FLIGHT] = last_waiting - first_waiting
                        if frame[c.PARTNER] == c.UNPAIRED:
                            if last_waiting - first_waiting >= max_waiting or waits(
                                queue, first_waiting, last_waiting, frames, old_ids, frame[c.CORRELATION_ID]
                            ):
                                plain = False
                                break
                            queue[last_waiting] = count
                            last_waiting += 1
                    else:
                        if first_waiting == last_waiting:
                            plain = False
                            break
                        asked = queue[first_waiting]
                        known = frames[asked, c.CORRELATION_ID] if asked >= 0 else old_ids[-1 - asked]
                        correlation_id = int32(buf, pos + 4)
                        if known != correlation_id:
                            plain = False
                            break
                        frame[c.KEY], frame[c.CORRELATION_ID], frame[c.BODY] = -1, correlation_id, pos + 8
                        if asked >= 0:
                            key, version = frames[asked, c.KEY], frames[asked, c.VERSION]
                            if programs[key, version, 0, 2] & FLEXIBLE_RESPONSE:
                                if end - pos < 9 or buf[pos + 8]:
                                    plain = False
                                    break
                                frame[c.BODY] = pos + 9
                            frame[c.PARTNER] = asked
                            frames[asked, c.PARTNER] = count
                        else:
                            frame[c.PARTNER] = c.EARLIER - answered
                            answered += 1
                        first_waiting += 1
                        if first_waiting == last_waiting:
                            gap = 0
                    count += 1
                    cut[k] += 1
                    read[k] = end
                    chunk[k] = last
                if not plain:
                    for at in range(was[6], count):
                        partner = frames[at, c.PARTNER]
                        if frames[at, c.KEY] < 0 and 0 <= partner < was[6]:
                            frames[partner, c.PARTNER] = c.UNPAIRED
                    write[k], read[k], chunk[k], chunk_end[k] = was[0], was[1], was[2], was[3]
                    last_order[k], cut[k], count = was[4], was[5], was[6]
                    first_waiting, last_waiting, gap, answered = was[7], was[8], was[9], was[10]
                    break
                wanted[k] = (wanted[k] + size) & MASK
            if acks[row]:
                link[c.ACK_A + 1 - k] = ack[row]
            link[c.PACKETS_A + k] += 1
            link[c.BYTES_A + k] += size
            clock = max(clock, moment)
            row += 1
        link[c.TAKEN], link[c.CLOCK], link[c.GAP], link[c.ANSWERED] = row, clock, gap, answered
        link[c.FRAME_END] = count
        for k in range(2):
            while chunk[k] + 1 < chunk_end[k] and chunks[chunk[k] + 1, c.CHUNK_START] <= read[k]:
                chunk[k] += 1
            link[c.NEXT_A + k], link[c.LAST_ORDER_A + k] = wanted[k], last_order[k]
            link[c.FRAMES_A + k], link[c.REST_A + k], link[c.REST_CHUNK_A + k] = cut[k], read[k], chunk[k]
            link[c.WRITTEN_A + k], link[c.TABLE_END_A + k] = write[k], chunk_end[k]
    return count
