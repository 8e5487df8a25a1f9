"""What `pip install .` installs works away from the source tree."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from kwsniff.spec.describe import dump
from tests.samples import sample
from tests.test_samples import tshark_requests

pytestmark = pytest.mark.costly

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked wheel, built from this tree."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(folder), str(ROOT)]
    subprocess.run([*command, "--disable-pip-version-check"], check=True, timeout=900)
    (wheel,) = folder.glob("kwsniff-*.whl")
    zipfile.ZipFile(wheel).extractall(folder / "site")
    return folder / "site"


def kwsniff(installed: Path, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    command = [sys.executable, "-m", "kwsniff", *arguments]
    done = subprocess.run(
        command,
        cwd=installed.parent,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return done.stdout


def test_the_wheel_brings_compiled_kernels_that_run_without_numba(installed: Path) -> None:
    code = (
        "import sys; sys.modules['numba'] = None\n"
        "import kwsniff; from kwsniff.engine.machine import Machine\n"
        "print(kwsniff.__file__, Machine(compiled=True).compiled)"
    )
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    environment.pop("KWSNIFF_KERNELS", None)
    told = subprocess.check_output([sys.executable, "-c", code], cwd=installed, env=environment, text=True)
    assert told.split() == [str(installed / "kwsniff" / "__init__.py"), "True"]


def test_the_wheel_holds_the_dissectors(installed: Path) -> None:
    shipped = {path.name for path in (installed / "kwsniff" / "dissectors").iterdir()}
    assert shipped == {path.name for path in (ROOT / "dissectors").iterdir()}


def test_the_wheel_brings_the_man_page(installed: Path) -> None:
    (page,) = installed.glob("kwsniff-*.data/data/share/man/man1/kwsniff.1")
    assert page.read_text() == (ROOT / "docs" / "kwsniff.1").read_text()


def test_the_wheel_knows_every_message(installed: Path) -> None:
    layouts = [json.loads(line) for line in kwsniff(installed, "protocol", "dump").splitlines()]
    assert layouts == list(dump())


def test_the_wheel_decodes_a_capture(installed: Path) -> None:
    output = kwsniff(
        installed, "decode", str(ROOT / "captures" / "librdkafka-produce.pcapng"), "-f", "jsonl", "-q"
    )
    rows = [json.loads(line) for line in output.splitlines()]
    assert (
        sum(row["event"] == "call" for row in rows) == tshark_requests(sample("librdkafka-produce")).total()
    )
