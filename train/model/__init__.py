"""Builds the network."""

from typing import Final

EPSILON: Final = 1e-5
"""What norms add to a variance."""
