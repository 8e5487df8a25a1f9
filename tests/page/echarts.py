"""Brings the charts' library into the package: `python -m tests.page.echarts [VERSION]`.

The file lies in the repository as it was published, so that installing needs nothing but Python, with no
network and no Node. What it is, and the digests of the published archive and of the file, stand beside it in
echarts.json; a test compares. To renew it, this fetches the archive by npm, which must be installed, checks
it and writes all of that anew.
"""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

ASSETS = Path(__file__).parents[2] / "kwsniff" / "page" / "assets"
ABOUT = ASSETS / "echarts.json"
FILE = "dist/echarts.min.js"
BESIDE = {"NOTICE": "echarts.NOTICE", "licenses/LICENSE-d3": "echarts.LICENSE-d3"}


def about() -> dict[str, Any]:
    """What is said of the file in the package."""
    found: dict[str, Any] = json.loads(ABOUT.read_text())
    return found


def fetch(version: str) -> None:
    """Replace the file by that of another version."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["npm", "pack", "--silent", f"echarts@{version}"], cwd=folder, check=True)
        (archive,) = Path(folder).glob("*.tgz")
        published = subprocess.run(
            ["npm", "view", f"echarts@{version}", "dist.integrity"],
            capture_output=True,
            text=True,
            check=True,
        )
        integrity = "sha512-" + base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
        if integrity not in published.stdout:
            raise SystemExit(f"echarts {version}: the archive is not what was published")
        with tarfile.open(archive) as files:
            whole = {name: files.extractfile(f"package/{name}").read() for name in (FILE, *BESIDE)}  # type: ignore[union-attr]
    (ASSETS / "echarts.min.js").write_bytes(whole[FILE])
    for name, target in BESIDE.items():
        (ASSETS / target).write_bytes(whole[name])
    digest = hashlib.sha256(whole[FILE]).hexdigest()
    said = {"package": "echarts", "version": version, "license": "Apache-2.0", "integrity": integrity}
    ABOUT.write_text(json.dumps({**said, "files": {FILE: digest}}, indent=2) + "\n")


if __name__ == "__main__":
    fetch(sys.argv[1] if len(sys.argv) > 1 else str(about()["version"]))
