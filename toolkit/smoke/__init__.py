"""Checks that a TensorFlow installation is what it should be: run inside it, read outside."""
