"""Verifies and signs artifacts, builds and trains them again, and pushes and pulls wheels."""
