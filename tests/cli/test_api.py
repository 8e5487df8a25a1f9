from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pyarrow as pa
import pytest

import kwsniff
from kwsniff.rows.schema import EVENTS
from tests.cli import stand_in
from tests.cli.conftest import ROOT, anomaly, call


@pytest.fixture
def path(monkeypatch: pytest.MonkeyPatch, capture: Callable[..., str]) -> str:
    # Not where it is defined: a module imported in the meantime would keep the stand-in for good.
    monkeypatch.setattr("kwsniff.api.decoded.offline", SimpleNamespace(events=stand_in.events))
    return capture(
        call(correlation_id=1, topics=[None], topic_ids=["u-1"]),
        {"do": "batch"},
        anomaly("gap"),
        call(correlation_id=2, topics=["orders"], topic_ids=["u-1"]),
    )


def test_calls_is_a_frame_of_calls_with_topic_names(path: str) -> None:
    frame = kwsniff.calls(path)
    assert list(frame.columns) == EVENTS.names
    assert frame["correlation_id"].tolist() == [1, 2]
    assert [list(topics) for topics in frame["topics"]] == [["orders"], ["orders"]]
    assert all(isinstance(kind, pd.ArrowDtype) for kind in frame.dtypes)
    assert frame["time"].dtype == pd.ArrowDtype(pa.timestamp("us", tz="UTC"))


def test_events_are_batches_of_the_schema(path: str) -> None:
    batches = list(kwsniff.events([Path(path)]))
    assert all(batch.schema.equals(EVENTS) for batch in batches)
    assert [kind for batch in batches for kind in batch["event"].to_pylist()] == ["call", "anomaly", "call"]


def test_a_choice_that_does_not_exist_is_a_type_error(path: str) -> None:
    with pytest.raises(TypeError, match="prots"):
        kwsniff.events(path, prots=(1,))


def test_decode_body_reads_a_body_and_raises_the_public_error() -> None:
    # ApiVersions 0 (protocol guide): error_code INT16, then an INT32 array of key, min, max as INT16.
    body = bytes.fromhex("000000000001001200000004")
    decoded = kwsniff.decode_body(18, 0, "response", body)
    assert decoded == {"error_code": 0, "api_keys": [{"api_key": 18, "min_version": 0, "max_version": 4}]}
    with pytest.raises(kwsniff.DecodeError):
        kwsniff.decode_body(18, 0, "response", body[:-1])


def test_every_public_name_is_there_and_others_are_not() -> None:
    assert all(hasattr(kwsniff, name) for name in kwsniff.__all__)
    assert set(kwsniff.__all__) <= set(dir(kwsniff))
    with pytest.raises(AttributeError, match="nosuch"):
        _ = kwsniff.nosuch


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = "import sys, kwsniff; print({'pandas', 'pyarrow', 'numpy', 'scapy', 'click'} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "set()"
