"""Finds pictures that a data set has more than once: in one class, in several, or in training and in test.

Equal files are found by their SHA-256. Pictures that only look the same, as after a change of size or of compression,
have an equal difference hash: 64 signs of the slope between neighbours in a grey picture of 9 by 8 points
(N. Krawetz, 2013, https://www.hackerfactor.com/blog/index.php?/archives/529-Kind-of-Like-That.html).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from train.data.dataset import Split
from train.data.pictures import IMAGE

SHOWN: Final = 3
"""Pairs of pictures that a warning names."""

UNEVEN: Final = 10
"""How often the images of the smallest class the largest class must have to be named."""

OTHER_BITS: Final = 3
"""Bits in which the hashes of pictures that look the same may differ."""

CROWD: Final = 64
"""Pictures that are compared by one part of their hashes: a part that more of them share tells little."""

COMMON: Final = 50
"""Where more than one in so many looks like a picture of another class, as scans of letters do, looks tell nothing."""

FLAT: Final = 8
"""Pictures with fewer slopes upwards, or downwards, look like many others: a plain wall, a scan of a page."""


class _Picture(NamedTuple):
    """A picture by its place in a split, with what it is compared by."""

    split: Split
    row: int
    label: int
    digest: bytes
    look: int

    @property
    def name(self) -> str:
        (value,) = self.split.images.table[[self.row]][IMAGE]
        return str(self.split.images.name(self.row, value))


_Pairs = Sequence[tuple[_Picture, _Picture]]


def find(splits: Mapping[str, Split], names: Sequence[str], source: str) -> tuple[str, ...]:
    """Return a warning for each way in which pictures stand twice in a data set, and for classes of uneven size."""
    pictures = {use: _list(split) for use, split in splits.items()}
    train = pictures["train"]
    known = _group(train)
    mistakable = [(each, other) for each in train if (other := _find_like(each, known, other_class=True))]
    if len(mistakable) > max(2 * SHOWN, len(train) // COMMON):
        mistakable, known = [], {}
    return (
        *_find_copies(train, source),
        *_find_contradictions(pictures, source),
        *_describe_mistakable([(each, other) for each, other in mistakable if other.row < each.row], source),
        *_find_leaks(pictures, known, source),
        *_compare_classes(splits["train"], names, source),
    )


def _list(split: Split) -> list[_Picture]:
    columns = split.labels, split.images.digests, split.images.looks
    return [
        _Picture(split, row, int(label), digest.tobytes(), int(look))
        for row, (label, digest, look) in enumerate(zip(*columns, strict=True))
    ]


def _find_copies(train: Sequence[_Picture], source: str) -> Iterator[str]:
    first: dict[tuple[int, bytes], _Picture] = {}
    pairs = [
        (each, known) for each in train if (known := first.setdefault((each.label, each.digest), each)) is not each
    ]
    if pairs:
        are = "is a copy of another one" if len(pairs) == 1 else "are copies of other ones"
        yield (
            f"{len(pairs)} of {len(train)} training images of {source} {are} in the same class, and "
            f"{'counts' if len(pairs) == 1 else 'count'} twice: {_name(pairs)}"
        )


def _find_contradictions(pictures: Mapping[str, Sequence[_Picture]], source: str) -> Iterator[str]:
    first: dict[bytes, _Picture] = {}
    twofold: dict[bytes, tuple[_Picture, _Picture]] = {}
    for each in (each for of_use in pictures.values() for each in of_use):
        if (known := first.setdefault(each.digest, each)).label != each.label:
            twofold.setdefault(each.digest, (each, known))
    if twofold:
        are = "image of {} is" if len(twofold) == 1 else "images of {} are"
        yield (
            f"{len(twofold)} {are.format(source)} in two classes, byte for byte, and no network can learn both: "
            f"{_name([*twofold.values()])}; delete each from the class to which it does not belong"
        )


def _describe_mistakable(pairs: _Pairs, source: str) -> Iterator[str]:
    if pairs:
        look = "image of {} looks" if len(pairs) == 1 else "images of {} look"
        yield f"{len(pairs)} training {look.format(source)} the same as one of another class: {_name(pairs)}"


def _find_leaks(
    pictures: Mapping[str, Sequence[_Picture]], known: Mapping[tuple[int, int], Sequence[_Picture]], source: str
) -> Iterator[str]:
    trained = {each.digest: each for each in reversed(pictures["train"])}
    for use, tested in pictures.items():
        if use == "train":
            continue
        count = f"of {len(tested)} {use} images of {source}"
        if pairs := [(each, trained[each.digest]) for each in tested if each.digest in trained]:
            are = "is also a training image" if len(pairs) == 1 else "are also training images"
            yield f"{len(pairs)} {count} {are}, byte for byte, so that the {use} accuracy is too good: {_name(pairs)}"
        looked = [(each, _find_like(each, known)) for each in tested if each.digest not in trained]
        if alike := [(each, other) for each, other in looked if other]:
            are = "looks" if len(alike) == 1 else "look"
            yield (
                f"{len(alike)} {count} {are} the same as a training image; if that is so, the {use} accuracy is too "
                f"good: {_name(alike)}"
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


def _group(pictures: Iterable[_Picture]) -> Mapping[tuple[int, int], list[_Picture]]:
    """Return telling pictures by their hash and its four parts. Two with three other bits at most share a part."""
    groups: dict[tuple[int, int], list[_Picture]] = {}
    for each in pictures:
        if FLAT <= each.look.bit_count() <= 64 - FLAT:
            for part in _cut(each.look):
                if len(group := groups.setdefault(part, [])) < CROWD:
                    group.append(each)
    return groups


def _cut(look: int) -> list[tuple[int, int]]:
    return [(4, look), *((place, look >> 16 * place & 0xFFFF) for place in range(4))]


def _find_like(
    picture: _Picture, known: Mapping[tuple[int, int], Sequence[_Picture]], *, other_class: bool = False
) -> _Picture | None:
    """Return a known picture that looks the same, but has other bytes."""
    for part in _cut(picture.look):
        for other in known.get(part, ()):
            close = (picture.look ^ other.look).bit_count() <= OTHER_BITS and picture.digest != other.digest
            if close and not (other_class and picture.label == other.label):
                return other
    return None


def _name(pairs: _Pairs) -> str:
    named = [f"{one.name} and {other.name}" for one, other in pairs[:SHOWN]]
    return f"{'; '.join(named)}{'; …' * (len(pairs) > SHOWN)}"
