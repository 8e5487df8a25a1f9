"""Parts of the input decoded side by side, and put together to what one run over all of it tells.

Theory of operation. A *part* is a stretch of the input, in segments. `part` decodes it without knowing what
came before: what it tells of connections that begin in it is final, and of each other one it knows soon
enough in what state it is. `join` holds the true state at a cut: it decodes what the part could not,
compares, names what the part could not name, and takes over the state at the part's end. `tail` moves
connections between machines.

Invariant: nothing here is believed because it is likely. What a part took for granted is compared; if it
was wrong, the connection is decoded again from there, which costs time and never an event.
"""
