"""Candidates: each module has ``load(threads)`` and ``make_step(job)``, and imports only its own framework."""
