"""The dissectors compared with the message definitions that a released client jar carries."""
