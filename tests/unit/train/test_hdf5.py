import re
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from tests.unit.train import keras_file
from tools.layers import ROOT
from train.config.presets import read_table
from train.errors import DataError
from train.model import hdf5, pretrained

SECRET = b"SECRET=the-words-of-the-other-file".ljust(4 * 7 * 7 * 3 * 64, b".")
SHAPE = (7, 7, 3, 64)
Hide = Callable[[h5py.Group, str, Path], None]


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return keras_file.save(keras_file.make(keras_file.SMALL, 32), tmp_path_factory.mktemp("keras") / "weights.h5")


def _link_bytes(group: h5py.Group, name: str, folder: Path) -> None:
    group.create_dataset(name, SHAPE, "float32", external=[(str(folder / "secret"), 0, len(SECRET))])


def _show_virtually(group: h5py.Group, name: str, folder: Path) -> None:
    layout = h5py.VirtualLayout(SHAPE, "float32")
    layout[:] = h5py.VirtualSource(str(folder / "other.h5"), "secret", SHAPE)
    group.create_virtual_dataset(name, layout)


def _link_out(group: h5py.Group, name: str, folder: Path) -> None:
    group[name] = h5py.ExternalLink(str(folder / "other.h5"), "/secret")


def _link_twice(group: h5py.Group, name: str, folder: Path) -> None:
    group["door"] = h5py.ExternalLink(str(folder / "other.h5"), "/")
    group[name] = h5py.SoftLink(f"{group.name}/door/secret")


def _go_around(group: h5py.Group, name: str, folder: Path) -> None:
    group[name] = h5py.SoftLink("/")


def _leave_out(group: h5py.Group, name: str, folder: Path) -> None:
    group.create_dataset(name, (1 << 20, 1 << 20), "float32")  # nothing of it is in the file


def _pack(group: h5py.Group, name: str, folder: Path) -> None:
    group.create_dataset(name, data=np.zeros((1 << 24,), "float32"), compression="gzip", chunks=(1 << 24,))


def _name_a_filter(group: h5py.Group, name: str, folder: Path) -> None:
    group.create_dataset(name, SHAPE, "float32", chunks=SHAPE, compression=32015, allow_unknown_filter=True)


def _refer(group: h5py.Group, name: str, folder: Path) -> None:
    group.create_dataset(name, SHAPE, h5py.ref_dtype)


@pytest.mark.parametrize(
    "hide",
    [_link_bytes, _show_virtually, _link_out, _link_twice, _go_around, _leave_out, _pack, _name_a_filter, _refer],
)
def test_values_that_a_file_does_not_have_itself_are_refused(
    hide: Hide, weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(read_table("presets"), "121", {**read_table("presets")["121"], "layers": keras_file.SMALL})
    (tmp_path / "secret").write_bytes(SECRET)
    with h5py.File(tmp_path / "other.h5", "w") as other:
        other["secret"] = np.frombuffer(SECRET, "float32").reshape(SHAPE)
    evil = tmp_path / "evil.h5"
    evil.write_bytes(weights.read_bytes())
    with h5py.File(evil, "r+") as file:
        group = file["conv1_conv"]
        path = group.attrs["weight_names"][0]
        group, name = (group[path].parent, path.rpartition("/")[2])
        del group[name]
        hide(group, name, tmp_path)
    with pytest.raises(DataError, match=r"is a link|do not lie in the file as they are|holds no numbers"):
        pretrained.read(evil, "121")


def test_values_are_read_once(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "many.h5", "w") as file:
        file["values"] = np.arange(4096.0)
    with hdf5.open_values(tmp_path / "many.h5") as values:
        assert values.read("values")[-1] == 4095
        with pytest.raises(ValueError, match="names more values than it has"):
            values.read("values")


@pytest.mark.parametrize("count", [2, 100_000])
def test_long_texts_are_refused_within_bounded_memory(count: int, tmp_path: Path) -> None:
    path = tmp_path / "texts.h5"
    with h5py.File(path, "w", libver="latest") as file:
        file.attrs.create("layer_names", ["x" * (8 << 20 if count == 2 else 10)] * count, dtype=h5py.string_dtype())
    code = "import sys; from pathlib import Path; from train.model import hdf5\n"
    code += "with hdf5.open_values(Path(sys.argv[1])) as file: file.list_texts('', 'layer_names')"

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (1 << 30, 1 << 30))

    done = subprocess.run(
        [sys.executable, "-c", code, path], check=False, cwd=ROOT, preexec_fn=limit, capture_output=True, text=True
    )
    assert re.search(r"ValueError: .*texts", done.stderr), done.stderr
