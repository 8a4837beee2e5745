"""Puts one defect after the other into a copy: ``python -m tests.mutations [WORD]`` runs ``mutations.yaml``."""
