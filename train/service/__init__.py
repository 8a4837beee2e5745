"""Serves the predictions of a finished run by HTTP: ``python -m train serve RUN``."""
