"""Reads any log by a table of known failures, and says what ended the program, why, and what to do."""

from toolkit.diagnosis.report import Cause, Diagnosis, diagnose, explain, explain_exit_code, name_cause
from toolkit.diagnosis.table import FailureTable, Row, list_known, load, load_row, to_clause

__all__ = [
    "Cause",
    "Diagnosis",
    "FailureTable",
    "Row",
    "diagnose",
    "explain",
    "explain_exit_code",
    "list_known",
    "load",
    "load_row",
    "name_cause",
    "to_clause",
]
