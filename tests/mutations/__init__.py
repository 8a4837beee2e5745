"""Breaks the code on purpose, one defect after the other, and requires that a test fails for each.

``python -m tests.mutations [WORD]`` runs the list in ``mutations.yaml``, or its entries whose name has that word.
"""
