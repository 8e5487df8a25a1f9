"""What `kwsniff protocol` prints, and the source of generated decoders."""

from __future__ import annotations

import json
import subprocess
import sys
import traceback

import pytest

from kwsniff.spec.compile import decoder, layout, source
from kwsniff.spec.describe import dump, listing
from kwsniff.spec.describe import layout as layout_text
from kwsniff.spec.load import catalog


def test_the_listing_has_a_line_for_each_api():
    rows = listing()
    assert [row.api_key for row in rows] == list(catalog().apis)
    last = catalog().api(1).max_version
    assert rows[1][:5] == (1, "Fetch", f"0-{last}", "12+", f"4-{last}")
    assert rows[4].kafka4 == "none"
    assert rows[17].flexible == "none"


def test_a_layout_shows_types_as_they_are_on_the_wire():
    text = layout_text("fetch", 12)
    assert text.startswith("Fetch (key 1) version 12\nReads record batches")
    assert "\n  cluster_id                compact nullable string  tag 0\n" in text
    assert "\n      records                 compact nullable records" in text
    assert "topic_id" not in text
    assert layout_text(1, 12) == text


def test_a_layout_defaults_to_the_last_version():
    last = catalog().api(17).max_version
    assert layout_text("SaslHandshake").startswith(f"SaslHandshake (key 17) version {last}\n")


def test_data_messages_have_layouts_too():
    assert "  commit_timestamp  int64\n" in layout_text("offsetcommitvalue", 3)
    assert "no fields" in layout_text("NoOpRecord")


def test_a_layout_of_nothing_is_refused():
    with pytest.raises(KeyError):
        layout_text("Fletch")
    last = catalog().api(1).max_version
    with pytest.raises(ValueError, match=f"Fetch has versions 0-{last}, not {last + 1}"):
        layout_text("Fetch", last + 1)


def test_the_dump_is_json_with_the_keys_promised():
    for row in dump():
        assert list(row) == ["api_key", "api", "direction", "version", "flexible", "fields"]
        assert json.loads(json.dumps(row)) == row
        for field in row["fields"]:
            assert list(field) == ["name", "type", "nullable", "tag", "fields"]
            assert (field["fields"] is None) == (not field["type"].endswith("struct"))
    names = {row["api"] for row in dump() if row["api_key"] == 74}
    assert names == {"ListConfigResources"}


def test_generated_source_can_be_read_and_shows_in_tracebacks():
    text = source(layout(17, 0, "request"))
    assert text.startswith("def decode(buf, pos, end, left=MAX_ELEMENTS):\n")
    try:
        decoder(17, 0, "request")(b"", 0, None)  # type: ignore[arg-type]
    except Exception as error:
        shown = "".join(traceback.format_exception(error))
    assert "<kwsniff SaslHandshake request 0 full>" in shown
    assert "raise explain(error, buf, start, end) from None" in shown


def test_the_catalog_is_there_within_a_blink():
    """It reads the first lines only; and nothing heavy is imported for it."""
    program = (
        "import sys, time\n"
        "from kwsniff.spec.load import catalog\n"
        "start = time.process_time()\n"
        "catalog()\n"
        "print(time.process_time() - start)\n"
        "print(sorted({'numpy', 'pandas', 'pyarrow', 'scapy'} & set(sys.modules)))\n"
    )
    taken = []
    for _ in range(3):
        run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        seconds, heavy = run.stdout.splitlines()
        assert heavy == "[]"
        taken.append(float(seconds))
    assert min(taken) < 0.1
