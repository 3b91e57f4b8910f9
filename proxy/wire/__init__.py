"""What crosses sockets, as bytes. Pure: no file in this package does I/O."""
