"""The operating system: free memory, files written whole or not at all, signals, and a closed network."""
