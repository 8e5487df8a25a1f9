"""Credentials out of decoded bodies, before anything prints them."""

from __future__ import annotations

from functools import cache
from typing import Any

from kwsniff.spec.compile import layout
from kwsniff.spec.load import catalog
from kwsniff.spec.model import Item

HIDDEN = "***"
"""Stands in the place of a credential."""


def conceal(api_key: int, version: int, direction: str, body: dict[str, Any]) -> dict[str, Any]:
    """The body with `***` for every credential that is not null (role `secret` in `dissectors/`).

    The body itself is not changed; without credentials it is returned as it is.
    """
    items = _secrets(api_key, version, direction)
    return _concealed(items, body) if items else body


def conceal_data(name: str, version: int, body: dict[str, Any]) -> dict[str, Any]:
    """As `conceal`, for a data message."""
    items = _with_secrets(catalog().data(name).at(version).items)
    return _concealed(items, body) if items else body


@cache
def _secrets(api_key: int, version: int, direction: str) -> tuple[Item, ...]:
    return _with_secrets(layout(api_key, version, direction).items)


def _with_secrets(items: tuple[Item, ...]) -> tuple[Item, ...]:
    return tuple(item for item in items if "secret" in item.roles or _with_secrets(item.items))


def _concealed(items: tuple[Item, ...], fields: dict[str, Any]) -> dict[str, Any]:
    return fields | {item.name: _hide(item, fields[item.name]) for item in items if item.name in fields}


def _hide(item: Item, value: Any) -> Any:
    if value is None:
        return None
    if "secret" in item.roles:
        return HIDDEN
    inner = _with_secrets(item.items)
    if item.array:
        return [_concealed(inner, element) for element in value]
    return _concealed(inner, value)
