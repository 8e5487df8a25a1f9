"""A kwsniff process that writes down, as its last act, the most memory it held: `child FILE ARGUMENTS...`.

The kernel's figure for a finished child also counts what its parent held when it forked.
"""

from __future__ import annotations

import sys
from pathlib import Path

from kwsniff.cli.running import run

if __name__ == "__main__":
    report = Path(sys.argv.pop(1))
    code = run()
    status = Path("/proc/self/status").read_text()
    report.write_text(status.split("VmHWM:")[1].split()[0])
    sys.exit(code)
