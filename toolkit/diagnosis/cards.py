"""Computes what compute capabilities, compilers and the memory of a card say of a failure."""

import re
from collections.abc import Mapping
from typing import Any

from toolkit.diagnosis.packages import compare
from toolkit.versions.table import load_table

Words = Mapping[str, str]


def date_card(words: Words, facts: Words, known: Mapping[str, Any]) -> Words:
    """Return since or until when compilers of CUDA know the card that a line names."""
    card = words.get("card", "")
    number = re.search(r"\d+", card)
    if number is None:
        return {"none": card} if card.rstrip("_") in {"sm", "compute", ""} and "card" in words else {}
    row = known["cards"].get(int(number[0]), {})
    told = {"capability": f"{number[0][:-1]}.{number[0][-1]}", "has": words.get("has", "")}
    here = facts.get("CUDA", "")
    if "since" in row and not ("gone" in row and here and compare(here, f"<{row['gone']}") == "new"):
        # The toolkit builds TensorFlow with CUDA up to 12.8.
        built = {"built": "yes"} if compare(row["since"], "<=12.8") == "" else {}
        return {**told, "since": str(row["since"]), **built}
    return {**told, "gone": str(row["gone"])} if "gone" in row else told


def find_driver(words: Words, _facts: Words, _known: Mapping[str, Any]) -> Words:
    """Return the driver that NVIDIA names for the first release of a CUDA that the version table has."""
    rows = load_table().cuda_rows
    known = [rows[version].driver for version in sorted(rows) if version.startswith(f"{words.get('cuda')}.")]
    return {"driver": known[0]} if known and known[0] else {}


def step_below(words: Words, _facts: Words, _known: Mapping[str, Any]) -> Words:
    return {"clang": str(int(words["below"]) - 1)} if "below" in words else {}


def measure_memory(_words: Words, facts: Words, _known: Mapping[str, Any]) -> Words:
    """Return how much of a card's memory was free, which says whether memory can be why cuDNN did not start."""
    told = {"insufficient": facts["insufficient driver"]} if "insufficient driver" in facts else {}
    free, whole = (int(facts.get(f"GPU bytes {name}", "0")) for name in ("free", "in all"))
    if not whole:
        return told
    return {**told, "free": f"{free / whole:.0%}", "room": "little" if free < whole / 4 else "enough"}
