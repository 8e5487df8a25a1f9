"""Figures of the source's shape: `make figures` prints them, `make check` holds them below their ceilings.

Ceilings and aims stand in figures.toml: whoever brings a figure down lowers its ceiling in the same commit.
A room is a package or a module right below `kwsniff`, on the floor above the highest room that it imports;
of a circle, the room that lacks fewest is lowest, and what it lacks are arrows upward.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PRODUCT = ROOT / "kwsniff"
PARAMETERS = 7
"""By position, besides `self`: more make a function wide, and more than one more a call."""
PUBLIC = frozenset(("_asdict", "_exit", "_fields", "_fields_", "_make", "_repr_html_", "_replace"))
"""Names that the standard library or notebooks document in spite of their underscore."""


OWN = ("self", "cls", "super()", "other")
"""What is of the class itself: `other` is what a method like `merge` calls another one of its class."""


@cache
def nodes(path: Path) -> list[ast.AST]:
    return [*ast.walk(ast.parse(path.read_bytes()))]


def modules(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.py"))


def lines(folder: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in modules(folder))


def shown(path: Path) -> str:
    return str(path.relative_to(PRODUCT))


def imported(path: Path) -> Iterator[str]:
    """Rooms that a module names in its imports."""
    for node in nodes(path):
        if isinstance(node, ast.Import | ast.ImportFrom):
            source = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            names = [f"{source}{each.name}".split(".") for each in node.names]
            yield from (name[1] for name in names if name[0] == PRODUCT.name and name[1:])


def arrows() -> dict[str, set[str]]:
    """Which other rooms each room imports. The package itself only gathers names."""
    found: dict[str, set[str]] = {}
    for path in modules(PRODUCT):
        room = path.relative_to(PRODUCT).with_suffix("").parts[0]
        found.setdefault(room, set()).update(to for to in imported(path) if to != room)
    del found["__init__"]
    return {room: to & found.keys() for room, to in found.items()}


def floors() -> tuple[int, list[str]]:
    """How many floors there are, and the arrows upward."""
    placed: set[str] = set()
    count, upward, rest = 0, [], arrows()
    while rest:
        free = {name for name, to in rest.items() if to <= placed}
        if not free:
            lowest = min(rest, key=lambda name: len(rest[name] - placed))
            upward += [f"{lowest} -> {to}" for to in rest[lowest] - placed]
            free = {lowest}
        count += 1
        placed |= free
        rest = {name: to for name, to in rest.items() if name not in free}
    return count, upward


def shared_names() -> list[str]:
    """Names that more than one module has."""
    places: dict[str, list[str]] = {}
    for path in modules(PRODUCT):
        places.setdefault(path.name, []).append(shown(path))
    del places["__init__.py"]
    return [f"{name}: {', '.join(paths)}" for name, paths in places.items() if len(paths) > 1]


def strangers() -> list[str]:
    """Modules that look behind an underscore of what is not of their own class, and where."""
    looks = (
        (path, {ast.unparse(node) for node in nodes(path) if private(node)}) for path in modules(PRODUCT)
    )
    return [f"{shown(path)}: {', '.join(sorted(found))}" for path, found in looks if found]


def private(node: ast.AST) -> bool:
    if not isinstance(node, ast.Attribute) or ast.unparse(node.value) in OWN:
        return False
    return node.attr[0] == "_" and node.attr[:2] != "__" and node.attr not in PUBLIC


def wide() -> list[str]:
    """Wide functions and calls, the widest first."""
    found = []
    for path in modules(PRODUCT):
        for node in nodes(path):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                given = [each.arg for each in (*node.args.posonlyargs, *node.args.args)]
                count, what = len(given) - (given[:1] in (["self"], ["cls"])), node.name
            elif isinstance(node, ast.Call):
                count, what = len(node.args), f"call of {ast.unparse(node.func)}"
            else:
                continue
            if count > PARAMETERS + isinstance(node, ast.Call):
                found.append(f"{count:2} {shown(path)}:{node.lineno} {what}")
    return sorted(found, reverse=True)


def figures() -> dict[str, int | list[str]]:
    """All of them, some as lists of what they count."""
    count, upward = floors()
    return {
        "lines of the product": lines(PRODUCT),
        "modules": len(modules(PRODUCT)),
        "rooms": sorted(arrows()),
        "floors": count,
        "arrows upward": upward,
        "modules that share a name": shared_names(),
        "modules that use private names of others": strangers(),
        "wide functions and calls": wide(),
        "lines of tests": lines(ROOT / "tests"),
        "lines of benchmarks": lines(ROOT / "tests" / "bench"),
    }


def main() -> int:
    """Print all figures, with -v what they count; 1 if one is above its ceiling."""
    limits = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
    over = 0
    print(f"{'':42}{'now':>8}{'ceiling':>9}{'aim':>8}")
    for name, found in figures().items():
        count, limit = found if isinstance(found, int) else len(found), limits[name]
        high = count > limit["ceiling"]
        over += high
        print(f"{name:42}{count:8,}{limit['ceiling']:9,}{limit['aim']:8,}{'  too many' * high}")
        if not isinstance(found, int) and "-v" in sys.argv:
            print(*(f"    {each}" for each in found), sep="\n")
    return int(over > 0)


if __name__ == "__main__":
    sys.exit(main())
