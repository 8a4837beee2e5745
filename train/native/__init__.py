"""Provides kernels of our own for CPUs, whose results have the same bits on every processor."""
