"""Runs a job in an environment that has passed the smoke checks: training, predictions, and the service."""
