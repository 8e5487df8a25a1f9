"""Passive analyzer of the Kafka wire protocol."""

__version__ = "0.1.0"
