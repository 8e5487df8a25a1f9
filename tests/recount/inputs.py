"""What is looked at: samples as they were recorded, and with packets missing."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.damage.mutants import dropped, packets, write
from tests.recount import (
    calls,
    changes,
    clients,
    comparison,
    findings,
    groups,
    live,
    logins,
    pipeline,
    report,
)
from tests.recount.checked import Checked
from tests.recount.command import printed

CAPTURES = Path(__file__).parents[2] / "captures"
SUBJECTS = (report, calls, clients, groups, logins, changes, comparison, findings, live)
LOSSY = ("java-groups.pcapng.zst", "librdkafka-errors.pcap", "sasl.pcapng", "stuck-consumer.pcapng.zst",
         "kafka-0.8.pcap", "throttled.pcapng")  # fmt: skip
LOST = 0.03


def lossy(path: Path, folder: Path) -> Path:
    """A copy without some of its packets, always the same ones."""
    link, whole = packets(str(path))
    left = dropped(LOST)(whole, random.Random(path.name))
    return write(folder / f"lossy-{path.name.partition('.pcap')[0]}.pcap", link, left)


def check(checked: Checked, path: str) -> None:
    """All outputs of one capture."""
    checked.about = Path(path).name
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        parquet = folder / "events.parquet"
        printed("decode", path, "-q", "--full", "-o", str(parquet))
        for subject in SUBJECTS:
            subject.check(checked, path, parquet, folder)


def check_all(paths: Sequence[str]) -> Checked:
    """All outputs of captures, or of all samples and copies of some; and the pipeline's of these together."""
    checked = Checked()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        copies = [] if paths else [lossy(CAPTURES / each, folder) for each in LOSSY]
        files = [*(map(Path, paths) if paths else sorted(CAPTURES.glob("*.pcap*"))), *copies]
        for path in (*files, *([] if paths else [CAPTURES / "rotation"])):
            check(checked, str(path))
        checked.about = "together"
        pipeline.check(checked, files, folder)
    return checked
