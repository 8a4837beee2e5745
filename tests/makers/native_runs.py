import pytest

NATIVE = ("--kernels", "native")
WEIGHTS = "0a321e6dd3b0d7cafdca69dfadcc0caaf126180639cef9996b55edac9501c794"
"""Digest of the weights of the tests' small run on digits, on every machine."""
BFLOAT16 = ("--precision", "mixed_bfloat16")
BFLOAT16_WEIGHTS = "1443203c809b4bb7caa8c9b2fb200ef029edb3eb8ec3ca4ce35ba15768f4565c"
PRECISIONS = pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param(NATIVE, WEIGHTS, id="float32"),
        pytest.param((*NATIVE, *BFLOAT16), BFLOAT16_WEIGHTS, id="bfloat16", marks=pytest.mark.slow),
    ],
)
