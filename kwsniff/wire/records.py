"""Record data: the constants of its formats.

The field `records` of Produce, Fetch, ShareFetch and FetchSnapshot holds batches one after the other, each
starting with an offset (8 bytes) and the length of what follows (4 bytes). The byte 16 after the start is the
magic in every format ever used, so one can hop from batch to batch:

* magic 2 (KIP-98): a 61-byte header with the number of records and a CRC-32C of all after the CRC field;
* magic 0 and 1 (KIP-32): one message each, with a CRC-32. A compressed message wraps a whole message set,
  and only decompressing it tells how many messages: the count is then unknown, never guessed.

A fetch response may end inside a batch: brokers cut by bytes, and the consumer asks again (protocol guide).
"""

from __future__ import annotations

UNKNOWN_CODEC = "unknown"
CODEC_NAMES = ("none", "gzip", "snappy", "lz4", "zstd", UNKNOWN_CODEC, UNKNOWN_CODEC, UNKNOWN_CODEC)
"""By the three codec bits of the attributes."""

CODEC_MASK = 0x07
TIMESTAMP_TYPE_BIT, TRANSACTIONAL_BIT, CONTROL_BIT, DELETE_HORIZON_BIT = 0x08, 0x10, 0x20, 0x40

LOG_OVERHEAD = 12
"""Bytes of offset and length, which the length does not count."""
MAGIC_AT = 16
BATCH_HEADER = 61
CRC_FROM = 21
"""In a magic 2 batch: the CRC covers the bytes from here."""
MIN_RECORD = 7
"""Bytes of the smallest magic 2 record: seven one-byte fields."""
MIN_MESSAGE = (14, 22)
"""Bytes after the length of the smallest message of magic 0 and 1: null key, null value."""


def least_length(magic: int) -> int:
    """Smallest length (without offset and length fields) of a batch of a known magic."""
    return BATCH_HEADER - LOG_OVERHEAD if magic == 2 else MIN_MESSAGE[magic]
