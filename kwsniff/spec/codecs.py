"""Bounded decompression of record data in the five codecs of Kafka.

Every codec works in steps that stop one byte after the cap, the smaller of the two limits, so that a bomb
costs no more than what an honest batch may. The codec packages are imported where used: most runs never
decompress. Bytes after a complete gzip member, LZ4 or zstd frame that do not start another are ignored, as
consumers do.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

from kwsniff.spec.binary import Buffer, DecodeError, uvarint

XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER = 16
"""Magic, then version and lowest compatible version (the framing of the snappy-java library)."""
GZIP_MAGIC = b"\x1f\x8b"
LZ4_MAGIC = b"\x04\x22\x4d\x18"
LZ4_CHUNK = 1 << 18
GZIP_PIECE = 1 << 16
MAX_MEMBERS = 10_000
"""Gzip members or LZ4 frames of one batch: empty ones cost time and no output."""
LEAST_CHARGE = 256
"""Bytes charged for opening anything, for the same reason."""
ZSTD_GROWTH = 16


class _OverflowError(Exception):
    """The output is longer than the cap."""


def decompress(codec: int, data: Buffer, limit: int, ratio: int, *, legacy: bool = False) -> bytes:
    """Decompress `data`.

    Args:
        codec: the codec bits of the attributes: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.
        data: the compressed bytes.
        limit: most bytes the result may have.
        ratio: most times the size of `data` it may have.
        legacy: `data` comes from a message of magic 0 or 1, whose writers got the LZ4 header checksum wrong
            (KIP-57): it is put right first.

    Raises:
        DecodeError: `codec_unknown`, `codec_failed`, `decompressed_size_limit`,
            `decompression_ratio_limit`.
    """
    if codec == 0:
        return bytes(data)
    if codec == 3 and legacy:
        data = with_lz4_header_checksum(bytes(data))
    decoder = _DECODERS.get(codec)
    if decoder is None:
        raise DecodeError("codec_unknown")
    cap = min(limit, ratio * len(data))
    try:
        return decoder(bytes(data), cap)
    except _OverflowError:
        code = "decompressed_size_limit" if cap == limit else "decompression_ratio_limit"
        raise DecodeError(code) from None


class Allowance:
    """Decompressed bytes that a batch, with all that is wrapped in it, may still take.

    What fails is charged in full: else damaged input could make the decoder work without end.
    """

    __slots__ = ("left", "ratio")

    def __init__(self, limit: int, ratio: int) -> None:
        self.left = limit
        self.ratio = ratio

    def decompress(self, codec: int, data: Buffer, *, legacy: bool = False) -> bytes:
        """As `decompress`, within what is left."""
        if codec == 0:
            return bytes(data)
        try:
            content = decompress(codec, data, self.left, self.ratio, legacy=legacy)
        except DecodeError:
            self.left -= min(self.left, self.ratio * len(data))
            raise
        self.left = max(self.left - max(len(content), LEAST_CHARGE), 0)
        return content


def _gunzip(data: bytes, cap: int) -> bytes:
    """Of all members: some clients flush by starting a new one (RFC 1952, section 2.2).

    Fed in pieces, since zlib copies what a member leaves over.
    """
    view = memoryview(data)
    parts: list[bytes] = []
    left, pos = cap, 0
    for _ in range(MAX_MEMBERS):
        member = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
        while not member.eof:
            piece = view[pos : pos + GZIP_PIECE]
            if not piece:
                raise DecodeError("codec_failed")
            try:
                parts.append(member.decompress(piece, left + 1))
            except zlib.error as error:
                raise DecodeError("codec_failed") from error
            pos += len(piece)
            left -= len(parts[-1])
            if left < 0:
                raise _OverflowError
        pos -= len(member.unused_data)
        if not data.startswith(GZIP_MAGIC, pos):
            return b"".join(parts)
    raise DecodeError("codec_failed")


def _unsnappy(data: bytes, cap: int) -> bytes:
    if not data.startswith(XERIAL_MAGIC):
        return _unsnappy_block(data, cap)
    parts: list[bytes] = []
    pos = 0
    while pos < len(data):
        if data.startswith(XERIAL_MAGIC, pos):
            pos += XERIAL_HEADER
            continue
        size = int.from_bytes(data[pos : pos + 4], "big")
        pos += 4
        if not 0 < size <= len(data) - pos:
            raise DecodeError("codec_failed")
        parts.append(_unsnappy_block(data[pos : pos + size], cap))
        cap -= len(parts[-1])
        pos += size
    return b"".join(parts)


def _unsnappy_block(data: bytes, cap: int) -> bytes:
    """A raw block, which states the length of its content first."""
    import cramjam

    try:
        size, _ = uvarint(data, 0, len(data))
        if size > cap:
            raise _OverflowError
        return bytes(cramjam.snappy.decompress_raw(data))
    except (DecodeError, cramjam.DecompressionError) as error:
        raise DecodeError("codec_failed") from error


def _unlz4(data: bytes, cap: int) -> bytes:
    import lz4.frame

    view = memoryview(data)
    parts: list[bytes] = []
    left, pos = cap, 0
    try:
        for _ in range(MAX_MEMBERS):
            context = lz4.frame.create_decompression_context()
            ended = False
            while not ended:
                want = min(left + 1, LZ4_CHUNK)
                part, read, ended = lz4.frame.decompress_chunk(context, view[pos:], max_length=want)
                if not ended and not part and not read:
                    raise DecodeError("codec_failed")
                parts.append(part)
                left -= len(part)
                pos += read
                if left < 0:
                    raise _OverflowError
            if not data.startswith(LZ4_MAGIC, pos):
                return b"".join(parts)
    except RuntimeError as error:
        raise DecodeError("codec_failed") from error
    raise DecodeError("codec_failed")


def _unzstd(data: bytes, cap: int) -> bytes:
    """One frame. Its own window is bounded by the library (128 MiB, and only what is used gets touched)."""
    import zstandard

    try:
        stated = zstandard.frame_content_size(data)
        if stated > cap:
            raise _OverflowError
        decompressor = zstandard.ZstdDecompressor()
        if stated >= 0:
            return decompressor.decompress(data, max_output_size=max(stated, 1))
        return _unzstd_unstated(data, cap)
    except zstandard.ZstdError as error:
        raise DecodeError("codec_failed") from error


def _unzstd_unstated(data: bytes, cap: int) -> bytes:
    """A frame that does not state the size of its content, as stream writers make: try growing sizes."""
    import zstandard

    size = ZSTD_GROWTH * len(data)
    while size < cap:
        try:
            return zstandard.ZstdDecompressor().decompress(data, max_output_size=size)
        except zstandard.ZstdError:
            size *= ZSTD_GROWTH
    try:
        return zstandard.ZstdDecompressor().decompress(data, max_output_size=max(cap, 1))
    except zstandard.ZstdError:
        # A reader gives what it can, so it tells a frame longer than the cap from a damaged one.
        total = 0
        for part in zstandard.ZstdDecompressor().read_to_iter(data):
            total += len(part)
            if total > cap:
                raise _OverflowError from None
        raise


_DECODERS: dict[int, Callable[[bytes, int], bytes]] = {1: _gunzip, 2: _unsnappy, 3: _unlz4, 4: _unzstd}


def with_lz4_header_checksum(data: bytes) -> bytes:
    """The LZ4 frame with the header checksum that its descriptor asks for.

    Old clients computed it from the magic on instead of from the descriptor on (KIP-57). The checksum is
    the second byte of the descriptor's XXH32 (LZ4 frame format, "Header checksum").
    """
    if len(data) < 7 or not data.startswith(LZ4_MAGIC):
        return data
    flags = data[4]
    at = 6 + (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0)
    if at >= len(data):
        return data
    checksum = xxh32_short(data[4:at]) >> 8 & 0xFF
    return data if data[at] == checksum else b"".join((data[:at], bytes((checksum,)), data[at + 1 :]))


_PRIME1, _PRIME2, _PRIME3, _PRIME4, _PRIME5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
_32_BITS = 0xFFFFFFFF


def xxh32_short(data: bytes) -> int:
    """XXH32 with seed 0 of less than 16 bytes, all a frame descriptor has (xxHash specification)."""
    value = _PRIME5 + len(data)
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        value = value + int.from_bytes(data[at : at + 4], "little") * _PRIME3 & _32_BITS
        value = (value << 17 | value >> 15) * _PRIME4 & _32_BITS
    for byte in data[whole:]:
        value = value + byte * _PRIME5 & _32_BITS
        value = (value << 11 | value >> 21) * _PRIME1 & _32_BITS
    value = (value ^ value >> 15) * _PRIME2 & _32_BITS
    value = (value ^ value >> 13) * _PRIME3 & _32_BITS
    return value ^ value >> 16
