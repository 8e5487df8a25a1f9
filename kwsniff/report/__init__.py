"""Statistics of events and their presentation."""

from __future__ import annotations
