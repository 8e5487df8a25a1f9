"""Kafka calls as they happen on an interface."""
