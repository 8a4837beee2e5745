"""The folder of a run: its records, checkpoints and metrics, written and read."""
