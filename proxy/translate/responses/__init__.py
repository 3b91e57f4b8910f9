"""The `responses` dialect."""
