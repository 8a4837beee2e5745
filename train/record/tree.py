"""Hashes a Merkle tree as RFC 9162, section 2.1.1, does: leaves and nodes apart, so that none stands for the other."""

import hashlib
from collections.abc import Sequence


def hash_leaf(content: bytes) -> bytes:
    return hashlib.sha256(b"\0" + content).digest()


def hash_pair(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\1" + left + right).digest()


def split(count: int) -> int:
    """Return how many of two leaves or more are in the left part: the largest power of two below their number."""
    return 1 << (count - 1).bit_length() - 1


def hash_tree(leaves: Sequence[bytes]) -> bytes:
    """Return the root over the hashes of leaves."""
    if len(leaves) < 2:
        return leaves[0] if leaves else hashlib.sha256(b"").digest()
    middle = split(len(leaves))
    return hash_pair(hash_tree(leaves[:middle]), hash_tree(leaves[middle:]))
