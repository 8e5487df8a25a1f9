"""The matrix: a row for each thing that happens to packets, a column for each capture point."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from tests.netem.compare import Outcome, outcome
from tests.netem.link import Hop, Link
from tests.netem.network import BROKER, CLIENT, Host
from tests.netem.population import KINDS, Population
from tests.netem.talks import Run, Talk
from tests.netem.views import VIEWS, view

LAN = Hop(delay=0.0005)
WIDE_OPEN = {
    "tcp_rmem": "4096 8388608 16777216",
    "tcp_rto_min_us": "200000",
    "tcp_congestion_control": "reno",
}
"""Megabytes go on behind a hole, before a timeout closes the sender's window."""
OLD_STACK = {"tcp_sack": "0", "tcp_timestamps": "0", "tcp_window_scaling": "0"}
ALLOWED = {"old": "overlap_differs", "stale": "overlap_differs", "unsent": "overlap_differs"}


@dataclass(frozen=True)
class Impairment:
    """One row."""

    name: str
    first: Hop = LAN
    second: Hop = LAN
    mtu: int = 1500
    offload: bool = False
    split: bool = False
    shrinks: tuple[tuple[float, int], ...] = ()
    forge: str = ""
    sysctls: dict[str, str] = field(default_factory=dict)
    kinds: tuple[str, ...] = ()
    """Of talks; all, if there are none."""


DEEP = (
    "deep requests",
    "deep responses",
    "deep requests 2",
    "deep responses 2",
    "pipelined",
    "commits",
    "values",
)

IMPAIRMENTS = (
    Impairment("nothing", Hop(), Hop()),
    Impairment("loss 1 %", Hop(loss=0.005), Hop(loss=0.005)),
    Impairment("loss 5 %", Hop(loss=0.025), Hop(loss=0.025)),
    Impairment("loss 20 %", Hop(loss=0.1), Hop(loss=0.1)),
    Impairment("loss in bursts", Hop(loss=0.01, burst=4), Hop(loss=0.01, burst=8)),
    Impairment("blackouts", Hop(delay=0.001), Hop(blackout=0.15)),
    Impairment("jitter", Hop(jitter=0.004), Hop(jitter=0.004)),
    Impairment("reordering", Hop(reorder=0.1), Hop(reorder=0.1, reorder_after=0.015)),
    Impairment("copies", Hop(duplicate=0.1), Hop(duplicate=0.2, duplicate_after=0.05)),
    Impairment("late copies", Hop(duplicate=0.05, duplicate_after=0.8), Hop(jitter=0.001)),
    Impairment("loss, no SACK", Hop(loss=0.02), Hop(loss=0.02, jitter=0.001), sysctls=OLD_STACK),
    Impairment("small MTU", Hop(loss=0.01), Hop(loss=0.01), mtu=576),
    Impairment("MTU shrinks", LAN, Hop(loss=0.005), shrinks=((0.15, 900), (0.6, 576))),
    Impairment("offload", LAN, LAN, offload=True),
    Impairment("offload, loss", LAN, Hop(loss=0.02), offload=True),
    Impairment("offload, cut", Hop(loss=0.01), Hop(loss=0.01, jitter=0.001), offload=True, split=True),
    Impairment("offload, MTU 9000", Hop(loss=0.01), Hop(reorder=0.02), mtu=9000, offload=True),
    Impairment("offload, shrinks", LAN, Hop(loss=0.01), offload=True, shrinks=((0.1, 1000),)),
    Impairment("holes", Hop(delay=0.002), Hop(hole=0.5), sysctls=WIDE_OPEN, kinds=DEEP),
    Impairment(
        "holes, offload",
        Hop(hole=0.7),
        Hop(delay=0.001),
        offload=True,
        split=True,
        sysctls=WIDE_OPEN,
        kinds=DEEP,
    ),
    Impairment(
        "everything",
        Hop(loss=0.01, jitter=0.002, duplicate=0.02, duplicate_after=0.2),
        Hop(loss=0.02, burst=3, jitter=0.003, duplicate=0.02, blackout=0.06),
    ),
    Impairment("forged RST", forge="reset"),
    Impairment("forged SYN", forge="syn"),
    Impairment("forged old bytes", forge="old"),
    Impairment("forged far bytes", forge="beyond"),
    Impairment("forged ACK", forge="unsent"),
    Impairment("forged old time", forge="stale"),
)


@dataclass
class Cell:
    """One row's outcome at each capture point, and what was carried."""

    impairment: Impairment
    seed: int
    chains: list[list[Talk]]
    packets: int = 0
    outcomes: dict[str, Outcome] = field(default_factory=dict)

    @property
    def problems(self) -> list[str]:
        """Of the applications: what they did not get to say. The truth is less for it, not wrong."""
        return [f"{talk.kind}: {talk.problem}" for chain in self.chains for talk in chain if talk.problem]


def carry(
    impairment: Impairment,
    seed: int,
    folder: Path,
    beside: Callable[[list[Host]], AbstractContextManager[object]] = nullcontext,
) -> Cell:
    """Let all talks happen over the network; the stations' captures are in `folder` then.

    `beside` is entered before anything is sent, and left when everything was.
    """
    folder.mkdir(parents=True, exist_ok=True)
    kinds = impairment.kinds or tuple(kind for kind in KINDS if not (impairment.forge and "open" in kind))
    chains = Population(seed).chains(kinds)
    link = Link(
        seed, impairment.first, impairment.second, impairment.shrinks, impairment.split, impairment.forge
    )
    made = [
        Host(address, mtu=impairment.mtu, offload=impairment.offload, sysctls=impairment.sysctls)
        for address in (CLIENT, BROKER)
    ]
    try:
        with beside(made):
            said = _carried(made, link, folder, Run(made[0], made[1], chains))
    finally:
        for host in made:
            host.close()
    assert said["refused"] == 0, "a host refused packets that its capture has"
    return Cell(impairment, seed, chains, said["packets"])


def _carried(hosts: list[Host], link: Link, folder: Path, run: Run) -> dict[str, int]:
    fds = [host.fd for host in hosts]
    script = str(Path(__file__).with_name("link.py"))
    command = [sys.executable, script, *map(str, fds), str(folder), link.plain]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, pass_fds=fds) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        run.go()
        process.stdin.close()
        said: dict[str, int] = json.loads(process.stdout.readline())
    return said


def judge(cell: Cell, folder: Path, names: tuple[str, ...] = tuple(VIEWS)) -> Cell:
    """Hold kwsniff's calls against the truth at each capture point."""
    allowed = frozenset({ALLOWED[cell.impairment.forge]} if cell.impairment.forge in ALLOWED else ())
    for name in names:
        chains = cell.chains
        if name == "hours":
            chains = [chain for chain in chains if chain[0].kind == "silent"]
            if not chains:
                continue
        silent = next((chain[0].silent for chain in chains if chain[0].silent), time.time())
        cell.outcomes[name] = outcome(view(folder, name, silent), chains, allowed)
    return cell
