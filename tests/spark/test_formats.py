"""Tables as Delta Lake and Iceberg, read back by the packages of these formats."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from kwsniff.capture.place import Place
from kwsniff.config import Config
from kwsniff.spark import formats, job
from kwsniff.spark.results import OutputError, Results
from kwsniff.spark.resulttables import TABLES
from tests.samples import sample

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIRST, SECOND = sample("midstream").paths, sample("java-groups").paths


def delta(out: Path, table: str) -> pa.Table:
    from deltalake import DeltaTable

    return pa.table(DeltaTable(str(out / table)).to_pyarrow_table())


def iceberg(out: Path, table: str) -> pa.Table:
    found = formats.catalog(Place.of(out)).load_table((formats.NAMESPACE, table)).scan().to_arrow()
    return pa.table(found)


READ: dict[str, Any] = {"delta": delta, "iceberg": iceberg}


def keys(rows: pa.Table) -> list[tuple[Any, ...]]:
    columns = [rows[name].to_pylist() for name in ("capture", "connection", "correlation_id", "time")]
    return sorted(zip(*columns, strict=True), key=str)


def of_sample(*names: str) -> list[tuple[Any, ...]]:
    found = [row for name in names for row in sample(name).calls]
    return sorted(
        ((row["capture"], row["connection"], row["correlation_id"], row["time"]) for row in found), key=str
    )


@pytest.mark.parametrize("form", ["delta", "iceberg"])
def test_a_table_holds_what_the_last_run_left(
    spark: SparkSession,
    tmp_path: Path,
    form: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = tmp_path / "out"
    job.run(spark, FIRST, out, Config(), form=form)
    assert keys(READ[form](out, "calls")) == of_sample("midstream")
    job.run(spark, [*FIRST, *SECOND], out, Config(), form=form, append=True)
    assert keys(READ[form](out, "calls")) == of_sample("midstream", "java-groups")
    with pytest.raises(OutputError, match=f"append with --format {form}"):
        job.run(spark, SECOND, out, Config(), append=True)
    # Broken off between the commits of two tables: the next run makes up for it.
    commit = formats.commit

    def broken(version: Any, made: Any) -> None:
        made.tables = {"calls": made.tables["calls"]}
        commit(version, made)
        raise KeyboardInterrupt

    monkeypatch.setattr(formats, "commit", broken)
    with pytest.raises(KeyboardInterrupt):
        job.run(spark, SECOND, out, Config(), form=form)
    monkeypatch.undo()
    assert keys(READ[form](out, "calls")) == of_sample("java-groups")
    assert Results(out).manifest.events["call"] == len(of_sample("midstream", "java-groups"))
    job.run(spark, SECOND, out, Config(), form=form)
    for name in ("calls", "connections", "findings"):
        mine = Results(out).table(name)
        theirs = READ[form](out, name)
        assert theirs.num_rows == mine.num_rows > 0
        assert set(mine.schema.names) <= set(theirs.schema.names)


def test_delta_knows_partitions_columns_and_what_to_merge_by(
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    from deltalake import DeltaTable

    job.run(spark, SECOND, tmp_path / "out", Config(), form="delta")
    table = DeltaTable(str(tmp_path / "out" / "calls"))
    assert table.metadata().partition_columns == ["date", "hour"]
    assert table.metadata().configuration["kwsniff.mergeKey"] == ",".join(TABLES["calls"].key)
    comments = {field.name: field.metadata.get("comment") for field in table.schema().fields}
    assert comments["acks"] == "of Produce: 0, 1 or -1 (all) [number]"
    rows = pa.table(table.to_pyarrow_table())
    whole = rows.num_rows
    # Merging the same rows by the key adds none.
    merging = table.merge(
        rows,
        " and ".join(f"(t.{name} is not distinct from s.{name})" for name in TABLES["calls"].key),
        "s",
        "t",
    )
    told = merging.when_not_matched_insert_all().execute()
    assert told["num_target_rows_inserted"] == 0
    assert pa.table(table.to_pyarrow_table()).num_rows == whole


def test_iceberg_knows_partitions_and_the_order_of_rows(
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    job.run(spark, SECOND, tmp_path / "out", Config(), form="iceberg")
    table = formats.catalog(Place.of(tmp_path / "out")).load_table((formats.NAMESPACE, "calls"))
    assert [str(field.transform) for field in table.spec().fields] == ["hour"]
    names = [table.schema().find_column_name(field.source_id) for field in table.sort_order().fields]
    assert names == ["time", "position"]
    assert table.schema().find_field("acks").doc == "of Produce: 0, 1 or -1 (all)"
    assert table.properties["kwsniff.merge-key"] == ",".join(TABLES["calls"].key)
