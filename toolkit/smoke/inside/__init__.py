"""Checks that a TensorFlow installation is the one asked for, and that it works. This package runs *inside* what it
tests, by that interpreter, and needs only the standard library and the TensorFlow under test. It is mounted read-only
into a container, or run by a virtual environment's interpreter on the host. The rest of the toolkit reads its report,
and imports only ``Ask`` and ``gpu_rules``, which load only the standard library. A parent process without TensorFlow
passes the checks one by one to a worker process, so that a check which hangs or crashes fails alone and does not end
the report."""
