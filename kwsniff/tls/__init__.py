"""TLS of captured connections: what handshakes say in the clear, records opened with logged secrets. No I/O
but the reading of key logs."""
