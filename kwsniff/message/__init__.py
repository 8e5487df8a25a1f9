"""Single messages, out of the packets again: what EVENTS keeps no bytes of.

`calls` finds a call by packet or by correlation id, `stream` its bytes in the capture, `tree` its fields
with their offsets, `packets` the packets that belong to it.
"""
