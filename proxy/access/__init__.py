"""Who a client is and whether it may come in: pure decisions."""
