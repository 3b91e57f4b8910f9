"""The port that clients see."""
