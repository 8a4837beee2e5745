"""Chooses the CUDA of a graft: one whose ptxas knows the cards, and a run-time set that has it."""

from collections.abc import Sequence
from dataclasses import replace

from toolkit.base.errors import UnsupportedError
from toolkit.versions import numbers
from toolkit.versions.set import Set
from toolkit.versions.table import Table


def choose(table: Table, base: Set, capabilities: Sequence[str], built: str = "") -> Set:
    """Return a TensorFlow and Python with a CUDA whose ptxas knows the cards, and the cuDNN beside it.

    Those of a locked set are taken where one has such a CUDA, else the first CUDA of TensorFlow's own tables, else of
    all. ``built``: the CUDA that the wheel was built with; empty for a published one. Raises UnsupportedError if no
    ptxas here knows the cards.
    """
    knowing = list_knowing(table, capabilities, built)
    base = base.without_libraries()
    sets = [item for item in table.published if item.cuda and item.serves(base)]
    if known := next((item for item in sets if item.cuda in knowing), None):
        return base.merge(known.libraries)
    row = table.tensorflow_rows.get(base.tensorflow)
    fitting = [cuda for cuda in numbers.sort(row.cuda) if cuda in knowing] if row else []
    cuda = [*fitting, *knowing][0]
    refused = [item for item in table.failures if item.refuse and item.when.keys() <= {"cuda", "cudnn"}]
    releases = [name for name in (row.cudnn if row else table.cudnn_rows) if table.cudnn_rows[name].wheel]
    fine = (name for name in releases if not any(item.affects(cuda=[cuda], cudnn=[name]) for item in refused))
    return replace(base, cuda=cuda, cudnn=numbers.sort(fine)[-1])


def list_knowing(table: Table, capabilities: Sequence[str], built: str = "") -> list[str]:
    """Return the CUDA releases whose ptxas is locked here and knows the cards, those of locked sets first.

    Of each version, only the last release is in the list. All are of the major release of the build, because its
    libraries are loaded, and none is of an earlier minor release, whose ptxas may not read its PTX. Grafts of all
    versions of TensorFlow take the first one, so they share what it assembled. Raises UnsupportedError if there is
    none.
    """
    first = numbers.parse(built or table.published_code.cuda)
    known = [
        cuda
        for cuda in numbers.sort(table.cuda_rows)
        if table.cuda_rows[cuda].parts
        and (first[0] + 1,) > numbers.parse(cuda) >= first[:2]
        and set(capabilities) <= set(table.cuda_rows[cuda].capabilities)
    ]
    if not known:
        raise UnsupportedError(
            f"no ptxas here knows compute capability {', '.join(capabilities)}",
            remedy="`toolkit matrix` lists what each CUDA knows",
        )
    used, last = {item.cuda for item in table.published}, {cuda.rpartition(".")[0]: cuda for cuda in known}
    return sorted(last.values(), key=lambda cuda: cuda not in used)
