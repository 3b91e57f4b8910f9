"""The `chat` dialect."""
