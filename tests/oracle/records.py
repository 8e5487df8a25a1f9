"""Record data summed up from its batches, as `kwsniff.spec.batches` reads them one by one: what the kernel
that hops from header to header must say."""

from __future__ import annotations

from typing import NamedTuple

from kwsniff.config import Config
from kwsniff.spec.batches import batches


class RecordsSummary(NamedTuple):
    """What the batch headers of one `records` field say."""

    records: int | None
    """Records in the complete batches, control records too; None if a compressed magic 0 or 1 wrapper
    is among them, or a header is malformed."""
    bytes: int
    """Size of the record data as sent, with a partial last batch."""
    codec: str | None
    """none, gzip, snappy, lz4, zstd, unknown; several joined by + in order of first appearance; None
    without a complete batch."""
    base_offset: int | None
    """Offset of the first record of the first batch; None if it is a compressed magic 0 or 1 wrapper
    (whose header holds the last offset) or there is no complete batch."""
    partial: bool
    """The data ends inside a batch."""
    crc_mismatches: int
    """Batches whose CRC is not that of their bytes; 0 if not verified."""
    malformed: str | None
    """`batch_malformed` or `codec_unknown`. After `batch_malformed` nothing is read."""


def summarize(buf: bytes, start: int, end: int, *, verify_crc: bool = True) -> RecordsSummary:
    """The summary of the record data in `buf[start:end]`."""
    found = list(batches(buf, start, end, Config(verify_crc=verify_crc)))
    whole = [each for each in found if not each.partial and each.problem != "batch_malformed"]
    counts = [each.record_count for each in whole]
    problems = {each.problem for each in found} - {None}
    return RecordsSummary(
        records=None if None in counts or "batch_malformed" in problems else sum(filter(None, counts)),
        bytes=min(end, len(buf)) - start,
        codec="+".join(dict.fromkeys(each.codec_name for each in whole)) or None,
        base_offset=whole[0].base_offset if whole else None,
        partial=any(each.partial for each in found),
        crc_mismatches=sum(each.crc_ok is False for each in whole),
        malformed=min(problems, default=None),  # by the alphabet, `batch_malformed` goes first
    )
