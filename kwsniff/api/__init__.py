"""What Python programs and notebooks call: the functions behind the names of the package itself."""
