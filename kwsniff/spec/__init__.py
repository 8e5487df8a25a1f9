"""Message layouts: dissector texts, their model, and the two decoders made from it."""
