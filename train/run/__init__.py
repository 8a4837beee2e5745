"""A run from its first step to its last: how it starts, goes on, is saved and ends."""
