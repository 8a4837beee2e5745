"""The operating system: memory, files written whole or not at all, signals, a closed network, and progress."""
