"""A finished run, run again from its manifest and compared."""
