"""Checks that a TensorFlow installation is the one asked for, and that it works.

This package runs *inside* what it tests, by that interpreter, and needs nothing but the standard library and the
TensorFlow under test. It is mounted read-only into a container, or run by a virtual environment's interpreter on the
host; the rest of the toolkit reads its report and never imports it.

A parent process without TensorFlow hands the checks one by one to a worker process, so that a check which hangs or
crashes is a finding about that check, not the end of the report.
"""
