"""Single messages, out of the packets again: what EVENTS keeps no bytes of.

`bytestream` finds a call by packet or by correlation id and its bytes in the capture, `tree` its fields with
their offsets, `extract` the packets that belong to it.
"""
