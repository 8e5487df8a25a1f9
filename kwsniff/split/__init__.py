"""Decoding a capture in pieces that know nothing of each other, with the events of one process.

Theory of operation. `plan` cuts the input into splits: ranges of packets of one file. Each split is decoded
on its own (`decode`). A connection that may have begun before the split is met in the middle: its segments
are kept (`edge.Head`) until its state can be guessed in full (`guess`), and from there on decoded as if the
guess were true. What comes out of a split is events and, for each connection that may reach beyond it, an
`Edge`.

`stitch` goes through the edges of a pair of endpoints in the order of the splits. It has the true state at
the end of the split before; it feeds that the segments which were kept, with the same engine that decodes
everything else, and compares the state reached with the one that was guessed. If they are equal, then all
that follows in the split is equal too, because a connection's events depend on its state and its segments
alone: only what merely counts up (packets, bytes, frames …) and what is copied to events unseen (the
connection's id, the client's software) is put right. If they differ, the connection is decoded again from
there, from its segments alone (`again`).

Invariant: nothing here is believed because it is likely. A guess costs time if it is wrong, never an event.
"""
