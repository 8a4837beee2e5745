import io
import json
import tarfile
from pathlib import Path

from toolkit.base import naming
from toolkit.base.digest import digest_bytes
from toolkit.engine import EnvironmentSpec

SPEC = EnvironmentSpec(tensorflow="2.19.0", python="3.11")
LABELS = {
    naming.OWNER_LABEL: "toolkit",
    naming.LOCK_LABEL: SPEC.inputs["requirements"],
    **{f"{naming.LABEL_PREFIX}.{name}": version for name, version in SPEC.named().items()},
    naming.INSTRUCTIONS_LABEL: "avx2 fma",
}


def write_archive(path: Path, *, layer: bytes = b"layer") -> Path:
    config = json.dumps({"config": {"Labels": LABELS}, "rootfs": {"diff_ids": [digest_bytes(b"layer")]}}).encode()
    entry = {"Config": "blobs/config", "RepoTags": ["toolkit/train:cpu-1"], "Layers": ["blobs/layer"]}
    parts = {"blobs/config": config, "blobs/layer": layer, "manifest.json": json.dumps([entry]).encode()}
    with tarfile.open(path, "w") as stored:
        for name, content in parts.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            stored.addfile(member, io.BytesIO(content))
    return path
