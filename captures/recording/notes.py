"""The page that says of each sample what it shows and how it was recorded."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from .samples import Sample

HEAD = """# Samples

Recorded from real clients and real brokers by `captures/record.py`, in a network namespace where only the
loopback interface exists. This page is written by `python3 captures/record.py --notes`.

To record them anew (root, tcpdump, dumpcap, tshark, Java 17, Maven, Node.js): `sudo python3 captures/record.py`.

`expected/NAME.json` holds what the clients themselves said they did, and `expected/NAME.tshark.csv.gz` what
tshark saw in the same packets; the tests compare both with what kwsniff says. Passwords in the samples were made
for them.

| sample | shows | clients | broker | recorded with | packets |
| --- | --- | --- | --- | --- | --- |
"""


def page(samples: Sequence[Sample], folder: Path) -> str:
    """The page for the samples that are in `folder`."""
    rows = [
        _row(sample, folder) for sample in samples if (folder / "expected" / f"{sample.name}.json").exists()
    ]
    return HEAD + "\n".join(rows) + "\n"


def _row(sample: Sample, folder: Path) -> str:
    note = json.loads((folder / "expected" / f"{sample.name}.json").read_text())
    clients = sorted(
        {f"{each['client']} {each.get('version', '')}".strip() for each in note.get("clients", [])}
    )
    files = note["files"]
    name = f"`{files[0]}`" if len(files) == 1 else f"`{Path(files[0]).parent}/` ({len(files)} files)"
    ports = ", ".join(str(port) for port in note["ports"])
    how = f"{sample.tool} on `{sample.interface}`, ports {ports}"
    broker = f"{note['broker']['name']} {note['broker']['version']}"
    return f"| {name} | {sample.shows} | {', '.join(clients)} | {broker} | {how} | {note['packets']} |"
