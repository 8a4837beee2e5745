"""Verifies artifacts against their records, rebuilds wheels, and repeats runs."""
