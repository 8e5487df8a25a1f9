"""Statistics by window of time, made from the stored events of a stream."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pandas as pd

from kwsniff.capture.place import Place
from kwsniff.spark import results
from tests.samples import sample
from tests.spark import documented
from tests.spark.rotated import rotated
from tests.spark.streams import Followed, by_window, stored, windows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_windows_hold_the_figures_of_their_time(ended: tuple[Followed, list[Path]]) -> None:
    followed, _ = ended
    everything = windows(followed.out)
    late = results.last_record(Place.of(followed.out)).late
    wanted = by_window(stored(followed.out))
    assert late == wanted["calls"].sum() // 2 - everything["calls"].sum() // 2
    assert len(everything) == len(wanted)
    same = (everything["calls"] == wanted["calls"]).to_numpy()
    assert same.mean() > 0.9  # but those that a late call was for
    pd.testing.assert_frame_equal(everything[same], wanted[same], check_dtype=False)
    told = [row["calls"] for row in followed.closed if row["api"] is None]
    assert told == everything[everything["api"].isna()]["calls"].tolist()


def test_responses_without_request_are_in_the_total_of_a_window_only(
    spark: SparkSession, tmp_path: Path
) -> None:
    followed = Followed(spark, tmp_path)
    rotated(sample("midstream").paths, followed.source, 1000)
    followed.run(end=True)
    calls = sample("midstream").calls
    orphans = sum(row["status"] == "orphan" for row in calls)
    found = windows(followed.out)
    assert orphans
    assert found[found["api"].isna()]["calls"].sum() == len(calls)
    assert found[found["api"].notna()]["calls"].sum() == len(calls) - orphans


def test_the_page_s_query_for_duckdb_finds_the_windows(ended: tuple[Followed, list[Path]]) -> None:
    followed, _ = ended
    (query,) = documented.sql()
    rows = duckdb.connect().sql(query.replace("results/", f"{followed.out}/")).to_arrow_table()
    wanted = windows(followed.out)
    assert rows["calls"].to_pylist() == wanted[wanted["api"].isna()]["calls"].tolist()
