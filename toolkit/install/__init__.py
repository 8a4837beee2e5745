"""Installs a TensorFlow with what it needs, by hash, into an environment of the user's own."""
