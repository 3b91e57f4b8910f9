"""A socket's life and a turn's road."""
