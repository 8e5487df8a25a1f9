"""Record the samples of this folder anew, from real clients and real brokers.

    sudo python3 captures/record.py --out /tmp/samples             all samples
    sudo python3 captures/record.py --out /tmp/samples NAME ...    some
    python3 captures/record.py --list                              what there is

It needs root, tcpdump, dumpcap, tshark, editcap, zstd, unshare, ip, nft, Java 17, Maven, Node.js, npm, Go, a C
compiler, OpenSSL with its headers, and kcat of the distribution. Other clients and brokers come from the package
indexes, pinned in `captures/clients`, into the work folder. After that the recording re-enters itself in a network namespace of its own where there is only a loopback interface: the ports
are free, nothing else is captured, nothing leaves the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from recording import capturing, encrypted, loss, notes, requests
from recording.brokers import NAME, Broker
from recording.environments import CLIENTS, Environment
from recording.samples import SAMPLES, Client, Sample
from recording.situations import SITUATIONS
from recording.tls import TLS

HERE = Path(__file__).resolve().parent
EVERY = (*SAMPLES, *SITUATIONS, *TLS)
CLIENT_SECONDS = 120
TOOLS = (
    "tcpdump",
    "dumpcap",
    "tshark",
    "editcap",
    "gzip",
    "zstd",
    "unshare",
    "ip",
    "java",
    "mvn",
    "node",
    "npm",
)
TOOLS += ("nft", "go", "cc", "openssl", "kcat")


def main() -> int:
    """Parse arguments, set up, and record."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="samples to record (default: all)")
    parser.add_argument("--out", type=Path, default=HERE, help="folder for the captures (default: this one)")
    parser.add_argument(
        "--work",
        type=Path,
        default=HERE.parent / "build" / "captures",
        help="folder for the environments and the brokers' data",
    )
    parser.add_argument("--list", action="store_true", help="list the samples and end")
    parser.add_argument(
        "--notes", action="store_true", help="write README.md from what was recorded, and end"
    )
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    unknown = set(options.names) - {sample.name for sample in EVERY}
    if unknown:
        parser.error(f"no such sample: {', '.join(sorted(unknown))} (see --list)")
    chosen = [sample for sample in EVERY if not options.names or sample.name in options.names]
    if options.list:
        for sample in chosen:
            print(f"{sample.name:26} {sample.shows}")
        return 0
    if options.notes:
        (options.out / "README.md").write_text(notes.table(EVERY, options.out))
        return 0
    if not options.inside:
        return enter_namespace(options)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    env = Environment(options.work.resolve())
    subprocess.run(["mount", "--bind", str(env.work / "hosts"), "/etc/hosts"], check=True)
    return sum(not attempt(sample, env, options.out.resolve()) for sample in chosen)


def enter_namespace(options: argparse.Namespace) -> int:
    """Check the tools, set the environments up, and run this script again where only loopback exists."""
    missing = [tool for tool in TOOLS if not shutil.which(tool)]
    if missing or os.geteuid():
        print(f"record.py: needs {', '.join(missing) or 'root'}", file=sys.stderr)
        return 2
    work = options.work.resolve()
    Environment(work).set_up()
    again = [
        sys.executable,
        __file__,
        "--inside",
        "--work",
        str(work),
        "--out",
        str(options.out),
        *options.names,
    ]
    (work / "hosts").write_text(f"127.0.0.1 localhost {NAME}\n")
    return subprocess.run(["unshare", "--net", "--mount", *again], check=False).returncode


def attempt(sample: Sample, env: Environment, out: Path) -> bool:
    """Record one sample; say what went wrong, if anything, and whether it succeeded."""
    try:
        print(f"{sample.name}: {record(sample, env, out)}", file=sys.stderr, flush=True)
    except (RuntimeError, OSError, subprocess.SubprocessError) as failed:
        print(f"{sample.name}: FAILED: {failed}", file=sys.stderr, flush=True)
        return False
    return True


def record(sample: Sample, env: Environment, out: Path) -> str:
    """Record one sample with its expected values; return a line about it."""
    set_segments(sample.mtu)
    run = env.work / "run" / sample.name
    shutil.rmtree(run, ignore_errors=True)
    run.mkdir(parents=True)
    folder = run / "capture"
    folder.mkdir()
    network: dict = {}
    if sample.from_start:
        broker, told = record_from_start(sample, env, run, folder)
    else:
        with sample.start(env, run) as broker:
            for number, client in enumerate(sample.before):
                run_client(client, env, broker, run, f"before-{number}")
            command = capture_command(sample, broker.ports, folder)
            if sample.middle:
                told = record_middle(sample, env, broker, run, command)
            else:
                with capturing.capturing(command, run / "capture.log"), loss.losing(sample.loss) as network:
                    told = run_clients(sample, env, broker, run)
    return publish(sample, broker, told, folder, out, network)


def set_segments(mtu: int) -> None:
    """Give the loopback interface this MTU, and let the kernel hand over one such packet at a time."""
    segments = "65535" if mtu == 65536 else "1"
    command = ["ip", "link", "set", "lo", "mtu", str(mtu), "gso_max_size", str(mtu), "gso_max_segs", segments]
    subprocess.run(command, check=True)


def record_from_start(sample: Sample, env: Environment, run: Path, folder: Path) -> tuple[Broker, list[dict]]:
    """Record with the capture running before the brokers are."""
    command = capture_command(sample, sample.ports, folder)
    with capturing.capturing(command, run / "capture.log"), sample.start(env, run) as broker:
        return broker, run_clients(sample, env, broker, run)


def record_middle(
    sample: Sample, env: Environment, broker: Broker, run: Path, command: list[str]
) -> list[dict]:
    """Record only a stretch from the middle of the clients' lives."""
    assert sample.middle is not None
    begin, length = sample.middle
    with ThreadPoolExecutor(1) as background:
        told = background.submit(run_clients, sample, env, broker, run)
        time.sleep(begin)
        with capturing.capturing(command, run / "capture.log"):
            time.sleep(length)
        return told.result()


def capture_command(sample: Sample, ports: tuple[int, ...], folder: Path) -> list[str]:
    """Return the capture command line of a sample."""
    path = folder / Path(sample.file).name.removesuffix(f".{sample.compress}")
    if sample.tool == "tcpdump":
        return capturing.tcpdump(path, sample.interface, ports, sample.snaplen)
    return capturing.dumpcap(path, sample.interface, ports, sample.snaplen, sample.rotate)


def run_clients(sample: Sample, env: Environment, broker: Broker, run: Path) -> list[dict]:
    """Run a sample's clients one after the other and return what they say they did."""
    return [run_client(client, env, broker, run, str(number)) for number, client in enumerate(sample.clients)]


def run_client(client: Client, env: Environment, broker: Broker, run: Path, label: str) -> dict:
    """Run one client; raises RuntimeError with its last words when it fails."""
    facts = run / f"facts-{label}.json"
    variables = {
        "BOOTSTRAP": broker.bootstrap,
        "FACTS": str(facts),
        "NODE_PATH": str(env.node_modules),
        "KAFKAJS_NO_PARTITIONER_WARNING": "1",
        "RUN": str(run),
        **broker.extra,
    }
    log = run / f"client-{label}.log"
    with log.open("wb") as output:
        done = subprocess.run(
            client.command(env),
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=CLIENTS,
            env={**os.environ, **variables},
            timeout=CLIENT_SECONDS,
            check=False,
        )
    if done.returncode:
        last = log.read_text(errors="replace").strip().splitlines()[-12:]
        raise RuntimeError("\n".join([f"{client.script} ended with status {done.returncode}", *last]))
    return json.loads(facts.read_text()) if facts.exists() else {}


def publish(sample: Sample, broker: Broker, told: list[dict], folder: Path, out: Path, network: dict) -> str:
    """Move the capture to its place and write the expected values beside it."""
    place = out / Path(sample.file).parent
    place.mkdir(parents=True, exist_ok=True)
    expected = out / "expected"
    expected.mkdir(exist_ok=True)
    files = sorted(folder.iterdir())
    counts = [capturing.packets(file) for file in files]
    keys = out / f"{sample.name}.keys"
    if broker.keys:
        encrypted.keep(broker.keys, keys)
    rules = capturing.dissection(broker.ports, broker.encrypted, keys if broker.keys else None)
    tables = tshark_tables(sample, rules, files, expected)
    if network:
        network["tshark"] = loss.analysed(files[0], broker.ports)
    if broker.keys and sample.embed:
        encrypted.embed(keys, files[0])
    if sample.rotate:
        for old in place.glob("*.pcapng"):
            old.unlink()
    placed = []
    for file in files:
        final = capturing.compress(file, sample.compress) if sample.compress else file
        final.chmod(0o644)
        placed.append(Path(shutil.move(final, place / final.name)))
    summary = {
        "sample": sample.name,
        "files": [str(path.relative_to(out)) for path in placed],
        "ports": list(broker.ports),
        "packets": sum(counts),
        "broker": {"name": broker.name, "version": broker.version},
        "tshark": tables,
        "clients": told,
        **({"network": network} if network else {}),
        **({"keys": keys.name, "encrypted": list(broker.encrypted)} if broker.keys else {}),
    }
    if broker.requests:
        requests.keep(broker.requests, broker.ports, expected / f"{sample.name}.requests.jsonl.gz")
    (expected / f"{sample.name}.json").write_text(json.dumps(summary, indent=1) + "\n")
    size = sum(path.stat().st_size for path in placed)
    return f"{sum(counts)} packets, {size} bytes in {len(placed)} file(s), ports {broker.ports}"


def tshark_tables(sample: Sample, rules: list[str], files: list[Path], expected: Path) -> str:
    """Write tshark's view of the sample; the files of a rotation are one stream."""
    target = expected / f"{sample.name}.tshark.csv.gz"
    if len(files) == 1:
        capturing.tshark_table(files[0], rules, target)
    else:
        with tempfile.TemporaryDirectory() as scratch:
            whole = Path(scratch) / "whole.pcapng"
            subprocess.run(["mergecap", "-a", "-w", str(whole), *map(str, files)], check=True)
            capturing.tshark_table(whole, rules, target)
    return target.name


if __name__ == "__main__":
    sys.exit(main())
