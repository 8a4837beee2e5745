"""Builds the network."""
