"""What other protocols say: one function an exchange, `exchange(port, connections)`."""
