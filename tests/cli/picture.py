"""The picture of the README, docs/report.svg: a report as a terminal shows it.

`pytest --update-golden tests/analysis/test_documentation.py` draws it again.
"""

from __future__ import annotations

import html
import io
import re

from rich.console import Console
from rich.text import Text

REPORT = ("report", "captures/stuck-consumer.pcapng.zst", "--color", "always")
FONT_FACE = re.compile(r"@font-face *\{.*?\}\s*", re.DOTALL)
"""Fonts that viewers would have to load."""


def drawn(report: str) -> str:
    """A terminal's text with its colours, as SVG; it has a background of its own for light and dark pages."""
    text = Text.from_ansi(report)
    width = max(line.cell_len for line in text.split())
    console = Console(record=True, width=width, file=io.StringIO())
    console.print(text)
    return FONT_FACE.sub("", console.export_svg(title=" ".join(("kwsniff", *REPORT[:2])), unique_id="report"))


def words(picture: str) -> str:
    """What can be read in a picture, without spaces: another rich may place it otherwise."""
    return "".join(html.unescape("".join(re.findall(r"<text[^>]*>([^<]*)</text>", picture))).split())
