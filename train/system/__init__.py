"""The operating system: files written whole or not at all, signals, and a closed network."""
