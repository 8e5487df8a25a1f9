"""The jars of a release, from the Maven repository that `mvn` is set up to use."""

from __future__ import annotations

import subprocess
from pathlib import Path

FIRST = "2.8"
"""The first release whose jar says where a request is served. Jars carry definitions since 2.4, those of 2.4
to 2.7 with names that changed before Kafka's own code was made from them."""

_POM = """\
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>kwsniff.conformance</groupId>
  <artifactId>release</artifactId>
  <version>1</version>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""
_DEPENDENCY = """\
    <dependency>
      <groupId>{group}</groupId>
      <artifactId>{artifact}</artifactId>
      <version>{version}</version>
      <exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>
    </dependency>"""
# kafka-clients logs through slf4j as soon as its error codes are loaded.
_LOGGING = ("org.slf4j", "slf4j-api", "1.7.36")
_SECONDS = 300


class NoSuchReleaseError(RuntimeError):
    """Maven could not fetch a release; the message is its own."""


def fetch(version: str, folder: Path) -> Path:
    """Puts the client jar of a release and what it needs to load into a folder; returns the client jar.

    Args:
        version: for instance `4.4.0`, or a Maven range such as `[4.4,)` for the newest there is.
    """
    wanted = [("org.apache.kafka", "kafka-clients", version), _LOGGING]
    entries = [_DEPENDENCY.format(group=g, artifact=a, version=v) for g, a, v in wanted]
    folder.mkdir(parents=True, exist_ok=True)
    pom = folder / "pom.xml"
    pom.write_text(_POM.format(dependencies="\n".join(entries)))
    goal = ["dependency:copy-dependencies", f"-DoutputDirectory={folder}"]
    command = ["mvn", "--quiet", "--batch-mode", "-Dstyle.color=never", "--file", str(pom), *goal]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    if done.returncode:
        errors = [line.partition("[ERROR]")[2].strip() for line in done.stdout.splitlines()]
        said = next(filter(None, errors), f"mvn ended with status {done.returncode}")
        raise NoSuchReleaseError(said)
    (jar,) = folder.glob("kafka-clients-*.jar")
    return jar


def release(jar: Path) -> str:
    """The release that a client jar is of."""
    return jar.stem.removeprefix("kafka-clients-")
