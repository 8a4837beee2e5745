"""Checks a TensorFlow installation: the checks run inside it, their report is read outside."""
