"""Programs beside the proxy, never imported by it."""
