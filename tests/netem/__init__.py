"""The kernel's own TCP as an oracle: real sockets over a bad network, captured at three places.

    python -m tests.netem --minutes 10

What the applications sent and read is the truth: nothing of it comes from reading packets.
"""
