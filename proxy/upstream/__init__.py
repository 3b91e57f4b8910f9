"""Endpoints, leases, and the one file that speaks HTTP to them."""
