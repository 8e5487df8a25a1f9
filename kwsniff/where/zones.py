"""Time zones by their names."""

from __future__ import annotations

from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from kwsniff.where import WhereError


def zone(name: str, option: str = "--tz") -> ZoneInfo:
    """A time zone by its name. Raises WhereError if there is none of that name."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise WhereError(f"{option}: there is no time zone {name!r}; UTC or Europe/Berlin are some") from None
