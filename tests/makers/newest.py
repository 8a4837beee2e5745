"""The newest sets of the version table, which a card or a processor gets if nothing else was asked for."""

from toolkit.versions.table import load_table

NEWEST = load_table().find_newest(cuda=True)
CPU = load_table().find_newest(cuda=False)
