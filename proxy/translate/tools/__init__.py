"""A client's tools, for servers that know functions alone."""
