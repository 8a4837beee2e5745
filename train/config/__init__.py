"""The configuration of a run: its options, each declared once, and what they are resolved from."""
