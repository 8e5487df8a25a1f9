"""Statistics of events and their presentation."""
