"""Proofs of the log's tree against RFC 6962's own definition, written out here, and its known vectors."""

import hashlib
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.record.test_audit import LEAVES, ROOTS
from toolkit.record import proofs
from train.record import tree

DATA = [f"entry {number}".encode() for number in range(70)]
HASHES = [tree.hash_leaf(each) for each in DATA]


def mth(data: Sequence[bytes]) -> bytes:
    """RFC 6962, 2.1: the Merkle Tree Hash."""
    n = len(data)
    if n == 0:
        return hashlib.sha256().digest()
    if n == 1:
        return hashlib.sha256(b"\x00" + data[0]).digest()
    k = max(2**power for power in range(40) if 2**power < n)
    return hashlib.sha256(b"\x01" + mth(data[:k]) + mth(data[k:])).digest()


def path(m: int, data: Sequence[bytes]) -> list[bytes]:
    """RFC 6962, 2.1.1: the Merkle Audit Path."""
    n = len(data)
    if n <= 1:
        return []
    k = max(2**power for power in range(40) if 2**power < n)
    return [*path(m, data[:k]), mth(data[k:])] if m < k else [*path(m - k, data[k:]), mth(data[:k])]


def subproof(m: int, data: Sequence[bytes], b: bool) -> list[bytes]:
    """RFC 6962, 2.1.2: the Merkle Consistency Proof, SUBPROOF."""
    n = len(data)
    if m == n:
        return [] if b else [mth(data)]
    k = max(2**power for power in range(40) if 2**power < n)
    if m <= k:
        return [*subproof(m, data[:k], b), mth(data[k:])]
    return [*subproof(m - k, data[k:], False), mth(data[:k])]


@pytest.mark.parametrize("count", ROOTS)
def test_the_definition_gives_the_known_roots(count: int) -> None:
    assert mth([leaf.encode() for leaf in LEAVES[:count]]).hex() == ROOTS[count]


SIZES = st.integers(1, len(DATA))


@given(SIZES, st.data())
def test_each_leaf_has_the_proof_of_the_definition(size: int, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, size - 1))
    root, proof = mth(DATA[:size]), proofs.prove_inclusion(HASHES[:size], index)
    assert proof == path(index, DATA[:size])
    assert proofs.includes(root, size, HASHES[index], index, proof)
    other = data.draw(st.integers(0, size))
    assert proofs.includes(root, size, HASHES[index], other, proof) == (other == index)
    assert not proofs.includes(root, size, HASHES[-1] if index != len(DATA) - 1 else HASHES[0], index, proof)
    assert not proofs.includes(root, size, HASHES[index], index, [*proof, root])
    assert not proof or not proofs.includes(root, size, HASHES[index], index, proof[:-1])


@given(SIZES, st.data())
def test_each_earlier_tree_has_the_proof_of_the_definition(size: int, data: st.DataObject) -> None:
    earlier = data.draw(st.integers(1, size))
    first, second = (earlier, mth(DATA[:earlier])), (size, mth(DATA[:size]))
    proof = proofs.prove_consistency(HASHES[:size], earlier)
    assert proof == subproof(earlier, DATA[:size], True)
    assert proofs.goes_on(first, second, proof)
    assert not proofs.goes_on((earlier, HASHES[0] if earlier > 1 else HASHES[1]), second, proof)
    assert not proofs.goes_on(first, (size, bytes(32)), proof)
    assert not proofs.goes_on(first, second, [*proof, bytes(32)])
    assert not proof or not proofs.goes_on(first, second, proof[:-1])
    assert earlier == size or not proofs.goes_on(second, first, proof)


@given(st.integers(2, len(DATA)), st.data())
def test_a_tree_with_one_other_leaf_does_not_go_on(size: int, data: st.DataObject) -> None:
    earlier = data.draw(st.integers(1, size - 1))
    changed = list(HASHES[:size])
    changed[data.draw(st.integers(0, earlier - 1))] = bytes(32)
    proof = proofs.prove_consistency(changed, earlier)
    assert not proofs.goes_on((earlier, mth(DATA[:earlier])), (size, tree.hash_tree(changed)), proof)


def test_every_tree_goes_on_from_the_empty_one() -> None:
    empty = (0, mth([]))
    assert proofs.prove_consistency(HASHES, 0) == []
    assert proofs.goes_on(empty, (70, mth(DATA)), [])
    assert not proofs.goes_on(empty, (70, mth(DATA)), [mth(DATA)])
