"""Reads any log by a table of known failures, and says what ended the program, why, and what to do."""

from toolkit.diagnosis.answer import Diagnosis, diagnose, explain, point_to
from toolkit.diagnosis.table import FailureTable, Row, load

__all__ = ["Diagnosis", "FailureTable", "Row", "diagnose", "explain", "load", "point_to"]
