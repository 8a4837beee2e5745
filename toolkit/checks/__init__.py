"""Checks that a TensorFlow installation is the one asked for, and that it works.

This package runs inside what it tests, by that interpreter, with the standard library only. The toolkit reads its
report, and imports only ``Expectation`` and ``gpu_rules``.
"""
