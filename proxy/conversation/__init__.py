"""Conversations as immutable chains of responses, and the stores that keep them."""
