"""What an upstream serves, and which of its models a client's name means."""
