"""Puts machine code for another GPU into a TensorFlow wheel, made from the PTX that the wheel has."""

from collections import Counter
from collections.abc import Mapping
from typing import Any


def describe_left(graft: Mapping[str, Any]) -> str:
    """Return in words what the record of a graft names as left to the driver's compiler, or to no machine code."""
    left = Counter[str]()
    for item in graft["libraries"]:
        left.update(item["left"])
    return "".join(f"left:      {count} {reason}\n" for reason, count in sorted(left.items()))
