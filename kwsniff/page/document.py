"""One self-contained file: the data of the page, what draws it, and a policy that lets nothing else in.

The Content Security Policy forbids every request to a network, and any script or style but those whose
digests it names. Data stands in a script element of type application/json, which is never run; `<`, `>` and
`&` are escaped in it, so that no text can end the element. Scripts make elements and text, never markup.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from functools import cache
from pathlib import Path
from typing import Any

ASSETS = Path(__file__).parent / "assets"
LIBRARY = "echarts.min.js"
MOST_BYTES = 4_900_000
"""Of the whole file."""
_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


@cache
def asset(name: str) -> str:
    """The text of one of the files that every page has."""
    return (ASSETS / name).read_text(encoding="utf-8")


def script_json(data: Any) -> str:
    """JSON that may stand in a script element."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for char, escape in _ESCAPES.items():
        text = text.replace(char, escape)
    return text


def escaped(text: str) -> str:
    """Text as it may stand in an element or a quoted attribute."""
    return html.escape(text, quote=True)


def document(title: str, body: str, data: Any) -> str:
    """The page: `title` is text, `body` markup whose texts are escaped, `data` what the script draws."""
    style, library, script = asset("page.css"), asset(LIBRARY), asset("page.js")
    policy = "; ".join(
        [
            "default-src 'none'", f"script-src {_digest(library)} {_digest(script)}",
            f"style-src {_digest(style)}", "img-src data:", "base-uri 'none'", "form-action 'none'",
        ]
    )  # fmt: skip
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<meta name="referrer" content="no-referrer">\n'
        f"<title>{escaped(title)}</title>\n<style>{style}</style>\n</head>\n<body>\n{body}\n"
        f'<script type="application/json" id="data">{script_json(data)}</script>\n'
        f"<script>{library}</script>\n<script>{script}</script>\n</body>\n</html>\n"
    )


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
