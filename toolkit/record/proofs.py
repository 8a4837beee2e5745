"""Makes and checks proofs of a Merkle tree: that a leaf is in it, and that a later tree goes on from an earlier one.

The proofs and the algorithms that check them are those of RFC 9162, sections 2.1.3 and 2.1.4, which keep the tree and
the proofs of RFC 6962. Whoever checks a proof needs no other leaf.
"""

from collections.abc import Sequence

from train.record.tree import hash_pair, hash_tree, split


def prove_inclusion(leaves: Sequence[bytes], index: int) -> list[bytes]:
    """Return the hashes that lead from a leaf to the root, the lowest first. ``leaves``: the hashes of all leaves."""
    if len(leaves) < 2:
        return []
    middle = split(len(leaves))
    if index < middle:
        return [*prove_inclusion(leaves[:middle], index), hash_tree(leaves[middle:])]
    return [*prove_inclusion(leaves[middle:], index - middle), hash_tree(leaves[:middle])]


def includes(root: bytes, size: int, leaf: bytes, index: int, proof: Sequence[bytes]) -> bool:
    """Return whether a proof shows that a tree of a size and a root has this leaf, given by its hash, at an index."""
    if not 0 <= index < size:
        return False
    place, last, found = index, size - 1, leaf
    for each in proof:
        if last == 0:
            return False
        if place & 1 or place == last:
            found = hash_pair(each, found)
            while not place & 1 and place:
                place, last = place >> 1, last >> 1
        else:
            found = hash_pair(found, each)
        place, last = place >> 1, last >> 1
    return last == 0 and found == root


def prove_consistency(leaves: Sequence[bytes], size: int) -> list[bytes]:
    """Return the hashes that lead from the tree of the first ``size`` leaves to that of all."""
    return _prove_subtree(leaves, size, whole=True) if 0 < size < len(leaves) else []


def _prove_subtree(leaves: Sequence[bytes], size: int, *, whole: bool) -> list[bytes]:
    """``whole``: the first tree is a part of this one that its reader knows."""
    if size == len(leaves):
        return [] if whole else [hash_tree(leaves)]
    middle = split(len(leaves))
    if size <= middle:
        return [*_prove_subtree(leaves[:middle], size, whole=whole), hash_tree(leaves[middle:])]
    return [*_prove_subtree(leaves[middle:], size - middle, whole=False), hash_tree(leaves[:middle])]


def goes_on(first: tuple[int, bytes], second: tuple[int, bytes], proof: Sequence[bytes]) -> bool:
    """Return whether a proof shows that the second tree has all leaves of the first in their places.

    Each tree is its size and its root. Every tree goes on from the empty one.
    """
    (size, root), (larger, end) = first, second
    if size in {0, larger}:
        return not proof and (size == 0 or root == end)
    if size > larger or not proof:
        return False
    path = list(proof) if size & (size - 1) else [root, *proof]
    place, last = size - 1, larger - 1
    while place & 1:
        place, last = place >> 1, last >> 1
    before = after = path[0]
    for each in path[1:]:
        if last == 0:
            return False
        if place & 1 or place == last:
            before, after = hash_pair(each, before), hash_pair(each, after)
            while not place & 1 and place:
                place, last = place >> 1, last >> 1
        else:
            after = hash_pair(after, each)
        place, last = place >> 1, last >> 1
    return last == 0 and before == root and after == end
