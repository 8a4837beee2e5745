"""Names and finds the locked run-time sets, and says which packages each is resolved from.

A set is a file of docker/requirements. The table lists those of the repository; `toolkit lock` makes others.
"""

from toolkit import project
from toolkit.versions import numbers
from toolkit.versions.table import Locked, Table

_HEAD = {
    False: "# The published CPU wheel of TensorFlow {tensorflow}.\n",
    True: "# The published GPU wheel of TensorFlow {tensorflow}, with the component wheels of one CUDA and cuDNN.\n",
}
_MARKS = ("# >>> pins: written by `make pins` from toolkit/versions/table.yaml", "# <<< pins")


def find_locked(table: Table, tensorflow: str, python: str, cuda: str, cudnn: str) -> Locked | None:
    """Return the set of the repository, or the one that `toolkit lock` made; None if there is neither."""
    if tensorflow not in table.tensorflow_rows:
        return None
    found = describe_set(table, tensorflow, python, cuda, cudnn)
    there = (project.ROOT / f"docker/requirements/{found.requirements}.txt").is_file()
    return found if there and python in found.python else None


def describe_set(table: Table, tensorflow: str, python: str, cuda: str, cudnn: str) -> Locked:
    """Return the set for these versions, whether it is there or not, and whether it can be for this Python or not."""
    oldest = numbers.parse(table.default.python)
    pythons = (each for each in table.tensorflow(tensorflow).python if numbers.parse(each) >= oldest)
    name = f"cuda-{tensorflow}-{cuda}-{cudnn}" if cuda else f"cpu-{tensorflow}"
    named = Locked(tensorflow=tensorflow, python=tuple(pythons), cuda=cuda, cudnn=cudnn, requirements=name)
    held = (item for item in table.published if (item.tensorflow, item.cuda, item.cudnn) == (tensorflow, cuda, cudnn))
    return next((item for item in held if python in item.python), named)


def list_packages(table: Table, item: Locked) -> list[str]:
    row = table.tensorflow(item.tensorflow)
    if not item.cuda:
        return [f"tensorflow-cpu=={item.tensorflow}", *row.beside]
    return [
        f"tensorflow=={item.tensorflow}",
        *(f"nvidia-{name}-cu12=={version}" for name, version in table.cuda_rows[item.cuda].components.items()),
        f"nvidia-cudnn-cu12=={table.cudnn_rows[item.cudnn].wheel}",
        f"nvidia-nccl-cu12=={row.nccl}",
        *row.beside,
    ]


def compose_input(table: Table, item: Locked) -> str:
    """Return the text of the ``.in`` file from which a set is resolved."""
    lines = [_MARKS[0], *list_packages(table, item), _MARKS[1], "-r train.in"]
    return _HEAD[bool(item.cuda)].format(tensorflow=item.tensorflow) + "\n".join(lines) + "\n"
