"""Finds pictures that a data set has more than once: in one class, in several, or in training and in test.

Equal files are found by their SHA-256. Pictures that only look the same, as after a change of size or of compression,
have an equal difference hash: 64 signs of the slope between neighbours in a grey picture of 9 by 8 points
(N. Krawetz, 2013, https://www.hackerfactor.com/blog/index.php?/archives/529-Kind-of-Like-That.html).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from train.data.dataset import Split
from train.data.pictures import IMAGE, Pictures

SHOWN: Final = 3
"""Pictures that a warning names."""

UNEVEN: Final = 10
"""How often the images of the smallest class the largest class must have to be named."""

OTHER_BITS: Final = 3
"""Bits in which the hashes of pictures that look the same may differ."""

FLAT: Final = 8
"""Pictures with fewer slopes upwards, or downwards, look like many others: a plain wall, a scan of a page."""


def find(splits: Mapping[str, Split], names: Sequence[str], source: str) -> tuple[str, ...]:
    """Return a warning for each way in which pictures stand twice in a data set, and for classes of uneven size."""
    return (
        *_find_copies(splits["train"], source),
        *_find_contradictions(splits, names, source),
        *_find_leaks(splits, source),
        *_compare_classes(splits["train"], names, source),
    )


def _find_copies(train: Split, source: str) -> Iterator[str]:
    of_class = [(int(label), digest) for label, digest in zip(train.labels, _list_digests(train), strict=True)]
    seen: set[tuple[int, bytes]] = set()
    copies = []
    for index, key in enumerate(of_class):
        if key in seen:
            copies.append(index)
        seen.add(key)
    if copies:
        yield (
            f"{len(copies)} of {len(train)} training images of {source} are copies of another one in their class, such "
            f"as {_name(train, copies)}: they count twice"
        )


def _find_contradictions(splits: Mapping[str, Split], names: Sequence[str], source: str) -> Iterator[str]:
    labels: dict[bytes, set[int]] = {}
    for split in splits.values():
        for label, digest in zip(split.labels, _list_digests(split), strict=True):
            labels.setdefault(digest, set()).add(int(label))
    twofold = {digest: found for digest, found in labels.items() if len(found) > 1}
    if twofold:
        first = sorted(next(iter(twofold.values())))
        of_train = [index for index, digest in enumerate(_list_digests(splits["train"])) if digest in twofold]
        shown = f", such as {_name(splits['train'], of_train)}" if of_train else ""
        yield (
            f"{len(twofold)} images of {source} are in two classes or more, byte for byte, as {names[first[0]]} and "
            f"{names[first[1]]}{shown}: no network can learn both"
        )


def _find_leaks(splits: Mapping[str, Split], source: str) -> Iterator[str]:
    trained = set(_list_digests(splits["train"]))
    known = _group(_list_looks(splits["train"]))
    for use, split in splits.items():
        if use == "train":
            continue
        digests = _list_digests(split)
        equal = [index for index, digest in enumerate(digests) if digest in trained]
        if equal:
            yield (
                f"{len(equal)} of {len(split)} {use} images of {source} are also training images, byte for byte, such "
                f"as {_name(split, equal)}: the {use} accuracy is too good"
            )
        looks = enumerate(_list_looks(split))
        alike = [index for index, look in looks if digests[index] not in trained and _resembles(look, known)]
        if alike:
            yield (
                f"{len(alike)} of {len(split)} {use} images of {source} look the same as a training image, such as "
                f"{_name(split, alike)}: if they are, the {use} accuracy is too good"
            )


def _compare_classes(train: Split, names: Sequence[str], source: str) -> Iterator[str]:
    counts = np.bincount(train.labels, minlength=len(names))
    least, most = int(counts.argmin()), int(counts.argmax())
    if counts[least] and counts[most] >= UNEVEN * counts[least]:
        share = counts[most] / counts.sum()
        yield (
            f"{names[most]} has {counts[most]} of {counts.sum()} training images of {source}, and {names[least]} has "
            f"{counts[least]}: a network that always says {names[most]} is right in {share:.0%} of such images"
        )


def _list_digests(split: Split) -> list[bytes]:
    return [digest.tobytes() for digest in split.images.digests]


def _list_looks(split: Split) -> list[int]:
    return [int(look) for look in split.images.looks]


def _group(looks: Iterable[int]) -> Mapping[tuple[int, int], set[int]]:
    """Return the telling hashes by each of their four parts: two with no more than three other bits share a part."""
    groups: dict[tuple[int, int], set[int]] = {}
    for look in looks:
        if FLAT <= look.bit_count() <= 64 - FLAT:
            for part in _cut(look):
                groups.setdefault(part, set()).add(look)
    return groups


def _cut(look: int) -> list[tuple[int, int]]:
    return [(place, look >> 16 * place & 0xFFFF) for place in range(4)]


def _resembles(look: int, known: Mapping[tuple[int, int], set[int]]) -> bool:
    return any((look ^ other).bit_count() <= OTHER_BITS for part in _cut(look) for other in known.get(part, ()))


def _name(split: Split, indices: Sequence[int]) -> str:
    images: Pictures = split.images
    rows: Sequence[Any] = images.table[list(indices[:SHOWN])][IMAGE]
    named = [images.name(index, row) for index, row in zip(indices[:SHOWN], rows, strict=True)]
    return f"{', '.join(named)}{', …' * (len(indices) > SHOWN)}"
