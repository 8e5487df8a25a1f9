"""The streaming job of `kwsniff pipeline --follow`: rotated captures to tables, statistics by window of time.

Theory of operation. A batch is what `kwsniff.spark.streamsource` makes of the files that are there: tasks
decode them, each its share of the connections, always the same for the same files, and write the events into
a staging directory. Further tasks give them their topic names and write them into new files of the tables;
closed windows are counted from these; small files are joined. None of that counts until the manifest names
it, and the manifest is also the record from which the next batch goes on. So after a crash at any place the
batch is done again as a whole, and every call is there once.

These are plain jobs, no streaming query: that would keep a second record of how far it has come.
All that a stream keeps for itself lies in a directory of this machine, or of one that all workers share:
`.stream` in the output directory, or another one.
"""

from __future__ import annotations

import json
import pickle
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from kwsniff.analysis.findings import Findings
from kwsniff.analysis.trust import TrustTotals
from kwsniff.capture.place import Place, Unread
from kwsniff.capture.rotation import grown, tell_unread, unread
from kwsniff.count.topics import FIXED, TopicNames, fill
from kwsniff.rows.schema import EVENTS
from kwsniff.spark import formats, windows
from kwsniff.spark.files import HOUR, Stored, bundles
from kwsniff.spark.finish import compacted, findings_files, spark_metadata, table_files
from kwsniff.spark.results import Manifest, StreamRecord, last_record, manifest, of_manifest, read
from kwsniff.spark.resulttables import BEHIND, FOUND, OF_EVENTS, ROWS, WINDOWS
from kwsniff.spark.staged import Staged, StagedFile, Tables, merged, stored
from kwsniff.spark.streamsource import LIST, STATE, Following, FollowReader, Kept, Share
from kwsniff.spark.tasks import run
from kwsniff.spark.version import Settings, Version, Where
from kwsniff.spark.windows import SECOND, Windows

if TYPE_CHECKING:
    from kwsniff.spark.tasks import Spark

JOINED = 8
"""Small files of an hour that are joined."""
LAST_HOUR = 1 << 32
"""Later than any."""
GRACE = 300.0
"""Seconds for which files stay that no longer count: readers of an earlier manifest have so long."""
LATEST = 32
"""Files of the list that may still be written to."""
NAMES = "names.json"
REPLACED = "replaced.json"
"""Files that no longer count, and since when."""


Told = Callable[[StreamRecord, StreamRecord, pa.Table], None]
"""Is given the record before a batch, the batch's, and the rows of the windows it closed."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """What a task decoded of a batch."""

    file: Staged
    capture: dict[str, int | None]
    """Counts over the whole stream so far."""
    lost: list[Unread]


class Stream:
    """A stream into one place."""

    def __init__(
        self, spark: Spark, following: Following, where: Where, settings: Settings, emitted: Told
    ) -> None:
        self._spark, self._settings, self._told = spark, settings, emitted
        self._out, self._own = where.out, where.own
        self._staging = self._own / "staging"
        self._following = replace(following, shares=settings.shares, state=str(self._own))
        self._source = FollowReader(self._following, ROWS)
        self._windows = Windows(int(settings.window_s * SECOND), int(settings.delay_s * SECOND))
        self._unread_before = len(unread(self._own / LIST))
        self._known: Manifest | None = None
        """That of the last finished batch; nobody else writes to the place."""

    def start(self, *, once: bool) -> None:
        """Clear away what a run left that broke off; `once`: no files count but those that are there."""
        self._known = read(self._out)
        Version(self._out, self._known, self._settings.form, stream=True).clear(spared=self._replaced())
        if once:
            self._source.prepareForTriggerAvailableNow()

    def batch(self) -> bool:
        """Write one batch after the last finished one; False if there is nothing to be read. Raises what
        Spark raises, and OSError."""
        known = self._known
        before = of_manifest(known)
        begin = {"files": before.files, "ended": before.ended}
        end = self._source.latestOffset(begin, self._source.getDefaultReadLimit())
        shares = self._source.partitions(begin, end)
        if not shares:
            return False
        shutil.rmtree(self._staging, ignore_errors=True)
        decoded = run(self._spark, "decode files", shares, partial(_decode, self._following, self._staging))
        version = Version(self._out, known, self._settings.form, stream=True)
        record, files = self._written(decoded, shares[0], before, version)
        closed = self._closed(before, record, files["calls"])
        files[WINDOWS.name] += table_files(WINDOWS, closed, self._out, version.below(WINDOWS.name))
        files |= findings_files(self._findings(decoded, before, record), self._out, version.below)
        files = self._compacted(files, version, _over(before, record))
        config, trust = self._settings.config, TrustTotals(**record.trust)
        made = manifest(config, record.batch + 1, files, trust, record.capture)
        made.spark, made.stream = self._spark.version, asdict(record)
        formats.commit(version, made)
        version.publish(made, whole=record.ended)
        self._known = made
        self._forget(known, made)
        self._following.forget(record.files)
        shutil.rmtree(self._staging, ignore_errors=True)
        if record.ended:
            shutil.rmtree(self._own / STATE, ignore_errors=True)
        self._tell_lost(decoded[0].lost)  # they all read the same packets
        self._told(before, record, closed)
        return True

    def _tell_lost(self, lost: list[Unread]) -> None:
        """Name files that were listed and could not be read any more, unless that was done."""
        known = unread(self._own / LIST) if lost else []
        for each in lost:
            if each not in known:
                tell_unread(self._own / LIST, each)

    def record(self) -> StreamRecord:
        """That of the last finished batch."""
        return last_record(self._out)

    def grown(self) -> dict[str, int]:
        """Files among the latest that were written to after they were taken for finished, and bytes lost."""
        return grown(self._source.listed[-LATEST:])

    def unread(self, skip: int) -> list[Unread]:
        """Captures that could not be read, but for the first so many of this run."""
        return unread(self._own / LIST, self._unread_before + skip)

    # The steps of a batch

    def _written(
        self, decoded: Sequence[Decoded], share: Share, before: StreamRecord, version: Version
    ) -> tuple[StreamRecord, dict[str, list[Stored]]]:
        """The batch's record, and the files of all tables with its rows."""
        number = before.batch + 1
        below = {table.name: version.below(table.name) for table in OF_EVENTS}
        names, until_us = self._names([each.file for each in decoded]), before.closed_until_ns // 1000
        tables = partial(Tables, self._out, below, f"batch-{number:06}", spark_metadata())

        def work(each: Decoded) -> Written:
            return _write(each.file, names, until_us, tables)

        trust = TrustTotals(**before.trust)
        rows, late = 0, before.late
        files = {name: list(held) for name, held in self._files(version).items()}
        for each in run(self._spark, "write tables", decoded, work):
            trust.merge(each.trust)
            rows, late = rows + each.rows, late + each.late
            for stored_file in each.files:
                files[stored_file.table].append(stored_file)
        capture = decoded[0].capture
        until = max(self._windows.closed_until(capture["last_time_ns"], share.ended), before.closed_until_ns)
        return StreamRecord(
            number, share.end, share.ended, until, late, capture, asdict(trust), rows
        ), files  # fmt: skip

    @staticmethod
    def _files(version: Version) -> dict[str, list[Stored]]:
        known = version.before.tables if version.before else {}
        return {table.name: known.get(table.name, []) for table in (*OF_EVENTS, FOUND, BEHIND, WINDOWS)}

    def _names(self, staged: list[Staged]) -> dict[str, str]:
        """Topic names by uuid that messages have told up to this batch."""
        place = self._own / NAMES
        learner = TopicNames()
        if place.exists():
            learner.names = json.loads(place.read_text())
        known = len(learner.names)
        columns = ["topics", "topic_ids", "position"]
        pairs = [
            batch.filter(pc.and_(batch["topic_ids"].is_valid(), batch["topics"].is_valid()))
            for file in staged
            if file.named
            for batch in stored(file.path, columns)
        ]
        if pairs:
            learner.add(pa.Table.from_batches(pairs).sort_by("position").combine_chunks())
        if len(learner.names) > known:
            Place(str(place)).replace(json.dumps(learner.names).encode())
        return learner.names

    def _closed(self, before: StreamRecord, record: StreamRecord, calls: list[Stored]) -> pa.Table:
        """Rows of the windows that this batch closes."""
        first = before.closed_until_ns or record.capture["first_time_ns"] or 0
        first = first // self._windows.length_ns * self._windows.length_ns
        if record.closed_until_ns <= first:
            return pa.table({})
        span = first, record.closed_until_ns
        return windows.statistics(self._spark, self._out, calls, span, self._windows.length_ns)

    def _findings(self, decoded: Sequence[Decoded], before: StreamRecord, record: StreamRecord) -> Findings:
        """The findings so far: one task takes all rows of a batch, in their order. What the rules counted is
        kept in a file for each batch, so that one which is done again begins with that of the one before."""
        paths, names = [each.file.path for each in decoded], {**self._names([]), **FIXED}
        last, now = (self._own / f"findings-{each.batch:09}" for each in (before, record))
        held = pickle.loads(last.read_bytes()) if before.batch >= 0 else Findings()

        def work(findings: Findings) -> Findings:
            for rows in merged([stored(path) for path in paths]):
                findings.take(fill(rows, names).select(EVENTS.names))
            return findings

        (findings,) = run(self._spark, "make findings", [held], work)
        Place(str(now)).replace(pickle.dumps(findings, pickle.HIGHEST_PROTOCOL))
        for file in self._own.glob("findings-*"):
            if file not in (last, now):
                with suppress(OSError):
                    file.unlink()
        return findings

    def _compacted(
        self, files: dict[str, list[Stored]], version: Version, over: range
    ) -> dict[str, list[Stored]]:
        """With small files joined: of hours that are just over, all."""
        every = [file for own in files.values() for file in own]
        found = bundles(every, JOINED, over=over)
        if not found:
            return files
        joined = compacted(self._spark, every, found, self._out, version.below)
        return {table: [file for file in joined if file.table == table] for table in files}

    def _forget(self, before: Manifest | None, now: Manifest) -> None:
        """Remove files that ceased to count `GRACE` ago: who read a manifest that names them has had time."""
        moment = time.time()
        replaced = self._replaced()
        over = [path for path, since in replaced.items() if since + GRACE <= moment]
        for path in over:
            (self._out / path).remove()
            del replaced[path]
        held = {file.path for file in before.files} if before else set()
        replaced |= dict.fromkeys(held - {file.path for file in now.files}, moment)
        Place(str(self._own / REPLACED)).replace(json.dumps(replaced).encode())

    def _replaced(self) -> dict[str, float]:
        place = self._own / REPLACED
        known: dict[str, float] = json.loads(place.read_text()) if place.exists() else {}
        return known


def _over(before: StreamRecord, now: StreamRecord) -> range:
    """Hours since 1970 that closed with this batch; no rows are to be expected of them but late ones."""
    first, end = (each.closed_until_ns // (1000 * HOUR) for each in (before, now))
    return range(first, LAST_HOUR if now.ended else end)


def _decode(following: Following, staging: Path, share: Share) -> Decoded:
    """The events of a share of the connections, into a file of staged events."""
    kept = Kept.before(following, share)
    with StagedFile(Place(str(staging)) / f"share-{share.index:04}.arrow") as file:
        for batch in kept.rows(following.config, share):
            file.add(kept.sessions.fill(batch))
    decoded = Decoded(file.emitted(), asdict(kept.capture_run.totals), kept.lost)
    kept.keep(following, share)
    return decoded


@dataclass(slots=True)
class Written:
    """What a task wrote of a batch."""

    files: list[Stored]
    trust: TrustTotals
    rows: int = 0
    late: int = 0
    """Calls of windows that are closed."""


def _write(file: Staged, names: Mapping[str, str], until_us: int, tables: Callable[[], Tables]) -> Written:
    """A file of staged events into the files of their tables; windows are closed up to `until_us`."""
    made = Written([], TrustTotals())
    with tables() as sink:
        for batch in stored(file.path):
            made.trust.add(batch)
            made.rows += batch.num_rows
            calls = batch.filter(pc.equal(batch["event"], "call"))["time"].cast(pa.int64())
            made.late += pc.sum(pc.less(calls, until_us)).as_py() or 0
            sink.add(fill(batch, names))
    made.files = sink.stored
    return made
