"""The workers of one run: their addresses, and what they send each other."""
