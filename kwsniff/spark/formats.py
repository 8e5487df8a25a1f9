"""The tables in formats that other engines know as tables: Delta Lake and Iceberg.

Theory of operation. Tasks write the same Parquet files in all formats; here they are committed to the table's
log, by the packages `deltalake` and `pyiceberg` (extra `lake`), without being read again. A commit makes the
table hold the files of the manifest, whatever it held before: so a run that was killed between the commits of
two tables is made up for by the next one. Each commit says in its own metadata which version it belongs to.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from importlib.util import find_spec
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from kwsniff.capture.place import Place
from kwsniff.spark.files import Stored, partition
from kwsniff.spark.results import Manifest, OutputError
from kwsniff.spark.resulttables import TABLES, LakeTable
from kwsniff.spark.version import CATALOG, DELTA, ICEBERG, PARQUET, Version

FORMATS = (PARQUET, DELTA, ICEBERG)
_NEEDED = {DELTA: "deltalake", ICEBERG: "pyiceberg"}
APP = "kwsniff"
NAMESPACE = "kwsniff"
FOLDERS = (
    pa.field("date", pa.string(), metadata={"comment": "of the time, UTC"}),
    pa.field("hour", pa.int32(), metadata={"comment": "of the day, UTC"}),
)
"""Columns of a table that its folders give."""


def check(form: str, out: Place) -> None:
    """Raises OutputError if there is no such format, or it can't be written to `out`."""
    if form not in FORMATS:
        raise OutputError(f"--format {form}: there are {', '.join(FORMATS)}")
    package = _NEEDED.get(form)
    if package is not None and find_spec(package) is None:
        raise OutputError(f"--format {form} needs {package}: pip install 'kwsniff[lake]'")
    if form == ICEBERG and out.path is None:
        raise OutputError(
            f"{out}: Iceberg tables have their catalog beside them, in a directory of this machine"
        )


def commit(version: Version, made: Manifest) -> None:
    """Make the tables hold the files of the manifest. Raises OSError."""
    errors: tuple[type[Exception], ...]
    commit_table: Callable[[Version, LakeTable, list[Stored]], int]
    if version.form == DELTA:
        from deltalake.exceptions import DeltaError

        errors, commit_table = (DeltaError,), _delta
    elif version.form == ICEBERG:
        from pyiceberg.exceptions import CommitFailedException, RESTError, ValidationError

        errors, commit_table = (
            (CommitFailedException, RESTError, ValidationError),
            partial(_iceberg, catalog(version.out)),
        )
    else:
        return
    try:
        for name, files in made.tables.items():
            made.commits[name] = commit_table(version, TABLES[name], files)
    except errors as error:
        raise OSError(f"{version.form}: {' '.join(str(error).split())}") from error


# Delta


def _delta(version: Version, table: LakeTable, files: list[Stored]) -> int:
    """Commit to one table; gives its version."""
    from deltalake import CommitProperties, DeltaTable, Schema
    from deltalake.transaction import AddAction, RemoveAction

    place = version.out / table.name
    options = _storage(place)
    schema = Schema.from_arrow(pa.schema([*table.schema, *FOLDERS]))
    # What belongs to a version is in its metadata: `history` shows it.
    properties = CommitProperties(custom_metadata={APP: str(version.number)})
    if DeltaTable.is_deltatable(place.url, options):
        known = DeltaTable(place.url, storage_options=options)
    else:
        known = DeltaTable.create(
            place.url, schema, partition_by=["date", "hour"], name=table.name, description=table.meaning,
            configuration={"kwsniff.mergeKey": ",".join(table.key)}, raise_if_key_not_exists=False,
            storage_options=options, commit_properties=properties,
        )  # fmt: skip
    held = dict(_held(known))
    wanted = {file.path.partition("/")[2]: file for file in files}
    now = time.time_ns() // 1_000_000
    added = [
        AddAction(path, file.bytes, _values(file), now, True, _statistics(table, file))
        for path, file in wanted.items()
        if path not in held
    ]
    removed = [
        RemoveAction(path, True, now, size, values)
        for path, (size, values) in held.items()
        if path not in wanted
    ]
    if added or removed:
        known.create_write_transaction(
            [*removed, *added], "append", schema, ["date", "hour"], commit_properties=properties
        )
        known.update_incremental()
    return int(known.version())


def _storage(place: Place) -> dict[str, str]:
    """What the driver asks for besides the environment."""
    plain = place.path is None and os.environ.get("AWS_ENDPOINT_URL", "").startswith("http:")
    return {"allow_http": "true"} if plain else {}


def _held(known: Any) -> Iterator[tuple[str, tuple[int, dict[str, str | None]]]]:
    """The files of a Delta table with their sizes and partition values."""
    for each in pa.table(known.get_add_actions()).to_pylist():
        date, hour = (each["partition"][name] for name in ("date", "hour"))
        values = {"date": None if date is None else str(date), "hour": None if hour is None else str(hour)}
        yield unquote(each["path"]), (each["size_bytes"], values)


def _values(file: Stored) -> dict[str, str | None]:
    date, hour = partition(file.hour)
    return {"date": date, "hour": None if hour is None else str(hour)}


def _statistics(table: LakeTable, file: Stored) -> str:
    """What lets a reader leave the file out."""
    known: dict[str, Any] = {"numRecords": file.rows}
    if file.first is not None and file.last is not None:
        known["minValues"] = {table.time: _iso(file.first)}
        # Readers know milliseconds here; the last one must not be cut.
        known["maxValues"] = {table.time: _iso(-(-file.last // 1000) * 1000)}
    return json.dumps(known)


def _iso(micros: int) -> str:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=micros // 1000)
    return f"{moment:%Y-%m-%dT%H:%M:%S.}{moment.microsecond // 1000:03}Z"


# Iceberg


def catalog(out: Place) -> Any:
    """The catalog of the Iceberg tables in a directory: SQLite, beside them."""
    from pyiceberg.catalog.sql import SqlCatalog

    assert out.path is not None
    place = out.path / CATALOG
    place.mkdir(parents=True, exist_ok=True)
    found = SqlCatalog(APP, uri=f"sqlite:///{place}/catalog.db", warehouse=out.path.as_uri())
    found.create_namespace_if_not_exists(NAMESPACE)
    return found


def _iceberg(tables: Any, version: Version, table: LakeTable, files: list[Stored]) -> int:
    """Commit to one table; gives its snapshot, 0 for none."""
    from pyiceberg.io.pyarrow import parquet_file_to_data_file

    assert version.out.path is not None
    uri = version.out.path.as_uri()
    known = _iceberg_table(tables, f"{uri}/{table.name}", table)
    held = {task.file.file_path: task.file for task in known.scan().plan_files()}
    wanted = [f"{uri}/{file.path}" for file in files]
    with known.transaction() as transaction:
        added = [each for each in wanted if each not in held]
        removed = [file for path, file in held.items() if path not in set(wanted)]
        if added or removed:
            changing = transaction.update_snapshot(snapshot_properties={APP: str(version.number)})
            with changing.overwrite() as snapshot:
                for file in removed:
                    snapshot.delete_data_file(file)
                for path in added:
                    made = parquet_file_to_data_file(known.io, transaction.table_metadata, path)
                    snapshot.append_data_file(made)
    present = known.refresh().current_snapshot()
    return present.snapshot_id if present is not None else 0


def _iceberg_table(tables: Any, location: str, table: LakeTable) -> Any:
    """The table, made if there is none: partitioned by hour, sorted by time."""
    from pyiceberg.exceptions import NoSuchTableError
    from pyiceberg.transforms import HourTransform, IdentityTransform

    try:
        return tables.load_table((NAMESPACE, table.name))
    except NoSuchTableError:
        pass
    properties = {"comment": table.meaning, "kwsniff.merge-key": ",".join(table.key)}
    creating = tables.create_table_transaction(
        (NAMESPACE, table.name), table.schema, location, properties=properties
    )
    with creating as transaction:
        with transaction.update_spec() as spec:
            spec.add_field(table.time, HourTransform(), "hour")
        with transaction.update_sort_order() as order:
            for name in table.order:
                order.asc(name, IdentityTransform())
        # Files carry no ids: columns are known by their names.
        mapping = transaction.table_metadata.schema().name_mapping.model_dump_json()
        transaction.set_properties({"schema.name-mapping.default": mapping})
    return tables.load_table((NAMESPACE, table.name))
