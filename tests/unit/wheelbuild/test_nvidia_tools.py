from pathlib import Path

import fatbin

from tests import nvidia_tools

pytestmark = nvidia_tools.needed
ARCHITECTURES = (75, 90, 120)


def test_what_a_proof_packs_is_what_fatbinary_packs(tmp_path: Path) -> None:
    cubins = nvidia_tools.assemble(tmp_path, ARCHITECTURES)
    theirs = nvidia_tools.pack(tmp_path, ARCHITECTURES, "--compress-mode=none")
    ours = fatbin.pack(list(cubins.items()))
    assert fatbin.unpack(theirs) == fatbin.unpack(ours)
    (tmp_path / "ours.fatbin").write_bytes(ours)
    assert nvidia_tools.list_code(tmp_path / "ours.fatbin") == nvidia_tools.list_code(tmp_path / "nvidia.fatbin")
    assert nvidia_tools.list_code(tmp_path / "ours.fatbin") == ["sm_75", "sm_90", "sm_120"]
