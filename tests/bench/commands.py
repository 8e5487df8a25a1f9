"""What is run on one capture: kwsniff, and what one would do without it."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
FIELDS = (
    "frame.time_epoch",
    "tcp.stream",
    "kafka.api_key",
    "kafka.api_version",
    "kafka.correlation_id",
    "kafka.error",
)
COLUMNS = "time,connection,api,api_version,correlation_id,error"


class Capture:
    """A recorded capture and the brokers' ports in it."""

    def __init__(self, path: Path, ports: list[int] | None = None) -> None:
        self.path = path
        self.name = path.stem
        self.ports: list[int] = ports or json.loads(path.with_suffix(".json").read_text())["ports"]

    def at(self, path: Path) -> Capture:
        """Another capture of the same brokers."""
        return Capture(path, self.ports)

    def _tshark(self, *how: str) -> str:
        ports = " ".join(f"-d tcp.port=={port},kafka" for port in self.ports)
        return f"tshark -n -r {shlex.quote(str(self.path))} {ports} -Y kafka {shlex.join(how)}"

    def tshark_fields(self, out: str = "/dev/null") -> list[str]:
        """Six fields of each message."""
        fields = [part for name in FIELDS for part in ("-e", name)]
        return ["sh", "-c", f"{self._tshark('-T', 'fields', *fields)} > {shlex.quote(out)}"]

    def tshark_json(self) -> list[str]:
        """All fields of each message."""
        return ["sh", "-c", f"{self._tshark('-T', 'json')} > /dev/null"]

    def tshark_pandas(self, scratch: Path) -> list[str]:
        """Six fields, and statistics of them."""
        table = str(scratch / "tshark.tsv")
        script = shlex.join([sys.executable, str(HERE / "pandas_report.py"), table])
        return ["sh", "-c", f"{self.tshark_fields(table)[2]} && {script}"]

    def kwsniff(self, command: str, *options: str) -> list[str]:
        """The arguments of kwsniff; its output goes where the options say."""
        ports = ",".join(map(str, self.ports))
        return [command, str(self.path), "-q", "--port", ports, *options]

    def calls(self, scratch: Path, jobs: int = 1) -> list[str]:
        """Six columns of each call."""
        return self.kwsniff(
            "decode", "-f", "csv", "--columns", COLUMNS, "-j", str(jobs), "-o", str(scratch / "calls.csv")
        )
