"""A card is found by every name that people, drivers and lists give it. What a name does not tell is never guessed."""

import pytest

from toolkit.base import project
from toolkit.base.errors import UsageError
from toolkit.doctor import cards

NAMES = {
    "12.1": "DGX Spark, GB10, NVIDIA GB10, sm_121, 12.1",
    "12.0": "5090, rtx5090, RTX 5090 D v2, NVIDIA RTX PRO 1000 Blac..., RTX PRO 6000, RTX 6000D, "
    "NVIDIA GeForce RTX 50..., "
    "NVIDIA RTX Pro 6000 Blackwell DC-4Q, NVIDIA RTX PRO 500 Blackwell Generation Laptop GPU, 10de:2b85",
    "11.0": "Thor, NVIDIA Thor, Jetson AGX Thor Developer Kit",
    "10.3": "GB300, NVIDIA B300 SXM6 AC, B300X-1-34C, sm_103, sm103",
    "10.0": "B200, B200X, GB200 NVL72, DGX B200, B100",
    "9.0": "GH200, NVIDIA GH200 480GB, H100XM, NVIDIA H100XM-80C, H20, H800, NVIDIA H200 MIG 1c.3g.71gb, compute_90",
    "8.9": "rtx4090d, RTX 4090D, NVIDIA RTX6000-Ada-4Q, RTX 6000 Ada, NVIDIA L40S-48Q, RTX 3050 A Laptop, nvidia-l4",
    "8.7": "Orin, Orin (nvgpu), Jetson Orin Nano, NVIDIA Jetson AGX Orin Developer Kit",
    "8.6": "3050, 3080ti, RTXA6000, NVIDIA RTXA6000-48Q, NVIDIA A10-24Q, A10G, RTX 2050, ASUS TUF RTX 3080 OC",
    "8.0": "A100D, GRID A100D-10C, NVIDIA A100-4-20C, NVIDIA A100-SXM4-40GB MIG 1g.5gb, A30X, CMP 170HX",
    "7.5": "T4, Tesla T4, GRID T4-16Q, GRID RTX8000P-8Q, Quadro RTX 6000, TITAN RTX, MX450, 0x218210DE",
    "7.2": "Jetson Xavier, Xavier NX",
    "7.0": "V100D, GRID V100D-8C, V100S, Tesla V100-SXM2-16GB, Titan V",
    "6.1": "1080ti, GeForce GTX 108..., P40, NVIDIA TITAN X (Pascal), TITAN X, MX250, P106-100, Quadro P520",
    "6.0": "Tesla P100-PCIE-16GB, P100",
    "5.3": "Jetson Nano, Tegra X1",
    "5.2": "GTX 970M, GTX TITAN X, Tesla M4, M40, GRID M60-8Q, 10de:1407",
    "5.0": "GTX 960M, GeForce 940MX, GRID M10-4Q",
    "3.7": "K80",
    "3.5": "K40, Tesla K20Xm",
    "3.0": "GTX 680, GRID K120Q",
    "2.1": "GeForce GTX 460M",
    "1.2": "GeForce 210",
    "9.0a": "sm_90a, 9.0a",
}


def test_a_name_tells_the_capability() -> None:
    expected = {name: capability for capability, names in NAMES.items() for name in names.split(", ")}
    assert {name: cards.find_card(name).capability for name in expected} == expected


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
        ("RTX 6000", ["7.5, 8.9 and 12.0"]),
        ("NVIDIA GeForce RTX 305...", ["8.6 and 8.9"]),
        ("Radeon RX 7900 XTX", ["not an NVIDIA card", "AMD"]),
        ("Instinct MI300X", ["not an NVIDIA card", "AMD"]),
        ("Arc A770", ["not an NVIDIA card", "Intel"]),
        ("Iris Xe", ["not an NVIDIA card", "Intel"]),
        ("Apple M3 Max", ["not an NVIDIA card", "Apple"]),
        ("M4", ["not an NVIDIA card", "Apple", "Tesla M4"]),
        ("NVIDIA Graphics Device", ["driver is too old to know the card"]),
        ("GeForce 6800 GT", ["older than CUDA"]),
        ("RTX 6090", ["did you mean", "RTX 5090 (12.0)"]),
        ("MX260", ["did you mean", "MX250 (6.1)"]),
        ("RTX 1080", ["no card of this name"]),
        ("86", ["did you mean 8.6?"]),
        ("7.55", ["no card of this name"]),
        ("10de:ffff", ["no card of this name"]),
        ("RTX", ["no card of this name"]),
        ("", ["no card of this name"]),
    ],
)
def test_what_a_name_does_not_tell_is_not_guessed(name: str, words: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        cards.find_card(name)
    said = f"{caught.value.what} {caught.value.why} {caught.value.remedy}"
    assert [word for word in words if word not in said] == [], said


def test_the_machines_of_a_chip_have_its_platform_and_note() -> None:
    assert cards.find_card("DGX Spark").platform == cards.find_card("GB200").platform == "linux/arm64"
    assert cards.find_card("B200").platform == ""
    assert "JetPack" in cards.find_card("Jetson Orin Nano").note
