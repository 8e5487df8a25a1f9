"""Kafka on a byte stream: headers, frames, records, pairing. No I/O."""
