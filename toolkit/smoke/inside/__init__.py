"""Checks that a TensorFlow installation is the one asked for, and that it works.

This package runs *inside* what it tests, by that interpreter, mounted read-only into a container or in a virtual
environment. It needs only the standard library and the TensorFlow under test. The toolkit reads its report, and imports
only ``Ask`` and ``gpu_rules``. A parent process without TensorFlow passes the checks one by one to a worker, so that
one which hangs or crashes fails alone.
"""
