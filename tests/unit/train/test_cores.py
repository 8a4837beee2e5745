import os
from pathlib import Path

import pytest

from tests.makers.control_groups import V2, make
from train.cores import count_cores, read_quota

DOCKER = "/docker/7cd29f74f5e3"


V1 = f"78 77 0:29 {DOCKER} {{}} ro,nosuid - cgroup cgroup rw,cpu,cpuacct"
CASES = {
    "version 2, in a namespace": ("0::/\n", V2, {"cpu.max": "150000 100000\n"}, 1.5),
    "version 2, no quota": ("0::/\n", V2, {"cpu.max": "max 100000\n"}, None),
    "version 2, a group around it": (
        "0::/a/b/c\n",
        V2,
        {"a/b/c/cpu.max": "max 100000\n", "a/b/cpu.max": "800000 100000\n", "a/cpu.max": "200000 100000\n"},
        2,
    ),
    "version 1, docker": (
        f"4:memory:/x\n1:cpu,cpuacct:{DOCKER}\n0::{DOCKER}\n",
        V1,
        {"cpu.cfs_quota_us": "250000\n", "cpu.cfs_period_us": "100000\n"},
        2.5,
    ),
    "version 1, no quota": (
        f"1:cpu,cpuacct:{DOCKER}\n",
        V1,
        {"cpu.cfs_quota_us": "-1\n", "cpu.cfs_period_us": "100000\n"},
        None,
    ),
    "nothing mounted": ("0::/\n", "", {"cpu.max": "50000 100000\n"}, None),
    "damaged": ("0::/\nnoise\n", V2, {"cpu.max": "many cores\n"}, None),
}


@pytest.mark.parametrize("case", CASES)
def test_quotas_are_read(case: str, tmp_path: Path) -> None:
    cgroup, mount, files, quota = CASES[case]
    assert read_quota(make(tmp_path, cgroup, mount, files)) == quota


@pytest.mark.parametrize(("quota", "cores"), [("max", 8), ("50000", 1), ("150000", 2), ("9900000", 8)])
def test_the_lower_of_affinity_and_quota_counts(
    quota: str, cores: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    assert count_cores(make(tmp_path, "0::/\n", V2, {"cpu.max": f"{quota} 100000\n"})) == cores
