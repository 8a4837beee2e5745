"""Tests of the version table and its rules."""
