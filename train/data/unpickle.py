"""Reading pickles of arrays, and of nothing else: a pickle from elsewhere is a program.

The CIFAR archives hold dictionaries of lists, bytes and NumPy arrays, for which two functions and two classes of NumPy
suffice; every other name is refused (Python documentation, "Restricting globals").
"""

import io
import pickle
from typing import Any, Final

from train.errors import DataError

ALLOWED: Final = frozenset(
    {
        ("numpy", "ndarray"),
        ("numpy", "dtype"),
        ("numpy.core.multiarray", "_reconstruct"),
        ("numpy._core.multiarray", "_reconstruct"),
        ("_codecs", "encode"),
    }
)

# What the interpreter of pickles raises when the bytes are noise: it checks nothing itself.
DAMAGE: Final = (
    pickle.UnpicklingError,
    EOFError,
    LookupError,
    ArithmeticError,
    ValueError,
    TypeError,
    AttributeError,
    MemoryError,
)


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no data set needs")
        return super().find_class(module, name)


def read_dictionary(content: bytes, origin: str) -> dict[bytes, Any]:
    """The dictionary in a pickle written by Python 2; its keys are bytes.

    Raises:
        DataError: it is no pickle, no dictionary, or asks for anything but arrays.
    """
    try:
        value = _Reader(io.BytesIO(content), encoding="bytes").load()
    except DAMAGE as error:
        raise DataError(f"cannot read {origin}", why=str(error), remedy="get the file again") from error
    if not isinstance(value, dict):
        raise DataError(f"{origin} does not hold a dictionary, as batches of CIFAR do")
    return value
