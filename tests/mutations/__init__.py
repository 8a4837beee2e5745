"""Put one defect after the other into a copy of the code, and require that a test fails for each.

``python -m tests.mutations [WORD]`` runs the list in ``mutations.yaml``, or the entries that have WORD in their name.
"""
