"""One Spark session for all tests of this directory: it takes longer to start than most of them run. And one
server of object storage.

Every Java machine here is left before optimized code would pay: they are told not to make any.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kwsniff.spark.sparksession import session
from tests.samples import sample
from tests.spark.rotated import rotated
from tests.spark.streams import Followed, come

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BRIEF = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@pytest.fixture(scope="session", autouse=True)
def brief() -> None:
    """For what tests start themselves: drivers, the master and the worker of a cluster."""
    os.environ["SPARK_SUBMIT_OPTS"] = os.environ["SPARK_DAEMON_JAVA_OPTS"] = BRIEF
    os.environ["SPARK_LAUNCHER_OPTS"] = BRIEF


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    made = session(
        "local[2]",
        spark_sql_shuffle_partitions="2",
        spark_driver_defaultJavaOptions=BRIEF,
    )
    yield made
    made.stop()


@pytest.fixture(scope="session")
def ended(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Followed, list[Path]]:
    """A stream that got its files in three steps, and was ended."""
    place = tmp_path_factory.mktemp("stream")
    files = rotated(sample("librdkafka-groups").paths, place / "all")
    followed = Followed(spark, place)
    for first, last in ((0, 3), (3, 8), (8, len(files))):
        come(files[first:last], followed.source)
        followed.run(batch_bytes=40_000)
    followed.run(end=True)
    return followed, [followed.source / file.name for file in files]


# A server of the S3 protocol on this machine, one for all tests: drivers go on asking the same.

PATIENCE = 60
BUCKET = "lake"


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment in which `s3://` is that server, with an empty bucket."""
    port = free_port()
    log = tmp_path_factory.mktemp("s3") / "log"
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with log.open("wb") as file:
        server = subprocess.Popen(command, stdout=file, stderr=file)
    environment = {
        "AWS_ACCESS_KEY_ID": "tests", "AWS_SECRET_ACCESS_KEY": "tests", "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_EC2_METADATA_DISABLED": "true",
    }  # fmt: skip
    try:
        wait_for(port, server, log)
        make_bucket(environment)
        yield environment
    finally:
        server.terminate()
        server.wait(30)


def wait_for(port: int, server: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + PATIENCE
    while True:
        with socket.socket() as tried:
            if tried.connect_ex(("127.0.0.1", port)) == 0:
                return
        assert server.poll() is None, log.read_text()
        assert time.monotonic() < until, log.read_text()
        time.sleep(0.05)


def make_bucket(environment: dict[str, str]) -> None:
    from pyarrow import fs

    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        system, _ = fs.FileSystem.from_uri(f"s3://{BUCKET}?allow_bucket_creation=true")
        system.create_dir(BUCKET)


@pytest.fixture(params=["local", "s3"])
def root(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A new directory on each kind of file system."""
    if request.param == "local":
        return str(tmp_path / "root")
    for name, value in request.getfixturevalue("s3").items():
        monkeypatch.setenv(name, value)
    return f"s3://{BUCKET}/{os.getpid()}-{tmp_path.name}"
