"""A card is found by every name that people, drivers and lists give it. What a name does not tell is never guessed."""

import pytest

from toolkit.base import project
from toolkit.base.errors import UsageError
from toolkit.doctor import cards


def test_every_name_of_every_device_tells_its_own_capability_or_that_it_tells_none() -> None:
    wrong = []
    lines = (project.ROOT / "toolkit/doctor/devices.txt").read_text().splitlines()
    for line in [line for line in lines if not line.startswith("#")]:
        _, code, names, families, *_ = [*line.split("\t"), "", "", ""]
        chip = cards.find_chip(code)
        for name in filter(None, [*names.split("|"), *(f"{family}-8Q" for family in families.split("|") if family)]):
            try:
                found = cards.find_card(name)
            except UsageError:
                continue
            wrong += [] if chip and found.capability == chip.capability else [(name, code, found.capability)]
    assert wrong == []


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("GTX 750", ["5.0 and 5.2", "--gpu 5.2", "10de:1407"]),
        ("GT 730", ["2.1, 3.0 and 3.5"]),
        ("Radeon RX 7900 XTX", ["not an NVIDIA card", "AMD"]),
        ("Arc A770", ["not an NVIDIA card", "Intel"]),
        ("M4", ["not an NVIDIA card", "Apple", "Tesla M4"]),
        ("NVIDIA Graphics Device", ["driver is too old to know the card"]),
        ("GeForce 6800 GT", ["older than CUDA"]),
        ("RTX 6090", ["did you mean", "RTX 5090 (12.0)"]),
        ("RTX 1080", ["no card of this name"]),
        ("86", ["did you mean 8.6?"]),
        ("10de:ffff", ["no card of this name"]),
        ("", ["no card of this name"]),
    ],
)
def test_what_a_name_does_not_tell_is_not_guessed(name: str, words: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        cards.find_card(name)
    said = f"{caught.value.what} {caught.value.why} {caught.value.remedy}"
    assert [word for word in words if word not in said] == [], said
