"""The page that the pipeline writes with its statistics is that of `kwsniff report --html`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kwsniff.config import Config
from kwsniff.count.naming import named
from kwsniff.page.html import page_of
from kwsniff.run.offline import events
from kwsniff.spark import job
from tests.page.test_html import data_of
from tests.samples import sample

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_pipeline_writes_the_page_of_the_report(spark: SparkSession, tmp_path: Path) -> None:
    paths = sample("librdkafka-groups").paths
    job.run(spark, paths, tmp_path / "out", Config())
    (page,) = tmp_path.rglob("report.html")
    written = data_of(page.read_text())
    made = data_of(page_of(named(events(paths, Config())), paths))
    for name in ("timeline", "latency", "matrix", "groups"):
        assert written[name] == made[name]
    for name in ("api", "client", "errors", "anomalies"):
        assert written["tables"][name]["rows"] == made["tables"][name]["rows"]
    assert len(written["slow"]) == 50
