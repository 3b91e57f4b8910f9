"""What is observed, and where it is written."""
