"""A worker (``python -m tests.unit.smoke.broken``) that runs the real checks, each with one thing broken."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from tests.unit.smoke.published import PUBLISHED
from toolkit.checks import check, device, libraries, numerics
from toolkit.checks.check import Check, Evidence, Expectation
from toolkit.checks.supervisor import serve

Probe = Callable[[Expectation], Evidence]


@contextmanager
def wrong_result(tf: Any, where: str, name: str, change: Callable[[Any], Any]) -> Iterator[None]:
    owner = check.require_attribute(tf, where)
    right = getattr(owner, name)
    with patch.object(owner, name, lambda *a, **k: change(right(*a, **k))):
        yield


def slightly(value: Any) -> Any:
    return value * 1.001


@contextmanager
def wrong_gradient(tf: Any, where: str, name: str) -> Iterator[None]:
    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def skew(x: Any) -> Any:
        return tf.identity(x), slightly

    with wrong_result(tf, where, name, skew):
        yield


def first_wrong(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda results: (change(results[0]), *results[1:])


@contextmanager
def rounding_to_bfloat16(tf: Any) -> Iterator[None]:
    with wrong_result(tf, "linalg", "matmul", lambda x: tf.cast(tf.cast(x, tf.bfloat16), tf.float32)):
        yield


@contextmanager
def noise(tf: Any) -> Iterator[None]:
    weather = check.load_numpy().random.default_rng()
    with wrong_result(tf, "nn", "conv2d", lambda x: x * (1 + 1e-6 * weather.standard_normal())):
        yield


@contextmanager
def compiler(tf: Any, treat: Callable[[Any], Any], **forced: Any) -> Iterator[None]:
    right = tf.function

    def function(body: Any, jit_compile: bool | None = None) -> Any:
        made = right(body, jit_compile=forced.get("jit_compile", jit_compile))
        return treat(made) if jit_compile else made

    with patch.object(tf, "function", function):
        yield


def compiled_wrongly(made: Any) -> Any:
    return lambda x: [slightly(value) for value in made(x)]


class Mute:
    def __init__(self, made: Any) -> None:
        self._made = made

    def __call__(self, *arguments: Any) -> Any:
        return self._made(*arguments)

    def experimental_get_compiler_ir(self, *_: Any) -> Any:
        return lambda stage: ""


@contextmanager
def without_onednn(_: Any) -> Iterator[None]:
    from tensorflow.python.util import _pywrap_util_port

    with patch.object(_pywrap_util_port, "IsMklEnabled", lambda: False):
        yield


@contextmanager
def imagined_gpu(tf: Any, *, capability: tuple[int, int] = (7, 5), growth: bool = True, **build: Any) -> Iterator[None]:
    """Let TensorFlow list a GPU that does not exist; operations for it run on the processor."""
    gpu = SimpleNamespace(name="/physical_device:GPU:0", device_type="GPU")
    details = {"device_name": "Imagined T4", "compute_capability": capability}
    experimental = tf.config.experimental
    with ExitStack() as stack:
        for owner, name, value in (
            (tf.config, "list_physical_devices", lambda kind: [gpu]),
            (experimental, "get_memory_growth", lambda _: growth),
            (experimental, "set_memory_growth", lambda *_: None),
            (experimental, "get_device_details", lambda _: details),
            (experimental, "get_memory_info", lambda _: {"current": 0, "peak": 0}),
            (tf.sysconfig, "get_build_info", lambda: {"is_cuda_build": True, **build}),
        ):
            stack.enter_context(patch.object(owner, name, value))
        tf.config.set_soft_device_placement(True)
        yield


@contextmanager
def wrong_on_gpu(tf: Any) -> Iterator[None]:
    def multiply(a: Any, b: Any) -> Any:
        return SimpleNamespace(device="/job:localhost/replica:0/task:0/device:GPU:0", numpy=(a + b).numpy)

    with imagined_gpu(tf), patch.object(tf.linalg, "matmul", multiply):
        yield


@contextmanager
def cuda_build(tf: Any) -> Iterator[None]:
    """Give the CPU build the published GPU build's info, so that its loader really looks for CUDA's libraries."""
    with patch.object(tf.sysconfig, "get_build_info", lambda: PUBLISHED):
        yield


@dataclass(frozen=True)
class Fault:
    check: Check  # the real one, with one thing broken
    says: str  # what it must say
    probe: Probe  # what the real one calls


def broken(name: str, probe: Probe, fault: Callable[[Any], Any], *, says: str, capability: str = "") -> Fault:
    def look(_: Expectation) -> Evidence:
        tf = check.load_tensorflow()
        with fault(tf):
            return probe(Expectation(capability=capability))

    return Fault(Check(name, f"fails: {name}", look, 60), says, probe)


NORM = ("compat.v1.nn", "fused_batch_norm")
BROKEN = (
    broken(
        "matmul.result", numerics.matmul, lambda tf: wrong_result(tf, "linalg", "matmul", slightly), says="from float64"
    ),
    broken(
        "matmul.gradient", numerics.matmul, lambda tf: wrong_gradient(tf, "linalg", "matmul"), says="gradient of left"
    ),
    broken("matmul.bfloat16", numerics.matmul, rounding_to_bfloat16, says="from float64"),
    broken("conv2d.result", numerics.conv2d, lambda tf: wrong_result(tf, "nn", "conv2d", slightly), says="result on"),
    broken(
        "batch_norm.result",
        numerics.batch_norm,
        lambda tf: wrong_result(tf, *NORM, first_wrong(slightly)),
        says="result on",
    ),
    broken(
        "batch_norm.gradient",
        numerics.batch_norm,
        lambda tf: wrong_result(tf, *NORM, first_wrong(lambda y: tf.stop_gradient(y * -0.001) + y * 1.001)),
        says="gradient of",
    ),
    broken(
        "xla.ignored",
        numerics.compiles,
        lambda tf: compiler(tf, lambda made: made, jit_compile=None),
        says="XLA cannot compile",
    ),
    broken("xla.mute", numerics.compiles, lambda tf: compiler(tf, Mute), says="no optimized HLO"),
    broken("xla.disagrees", numerics.agrees, lambda tf: compiler(tf, compiled_wrongly), says="differ by 0.001"),
    broken("onednn.off", device.onednn, without_onednn, says="oneDNN is off"),
    broken(
        "device.other",
        device.capability,
        lambda tf: imagined_gpu(tf, capability=(8, 6), cuda_compute_capabilities=["compute_75"]),
        capability="7.5",
        says="Imagined T4 has compute capability 8.6, asked for 7.5",
    ),
    broken(
        "device.unserved",
        device.capability,
        lambda tf: imagined_gpu(tf, capability=(6, 1), cuda_compute_capabilities=["sm_75"]),
        says="the build has no kernel for Imagined T4 (6.1)",
    ),
    broken("device.elsewhere", device.operation, imagined_gpu, says="asked for GPU:0, computed on"),
    broken("device.wrong", device.operation, wrong_on_gpu, says="product of small integers is wrong"),
    broken("device.greedy", device.memory, lambda tf: imagined_gpu(tf, growth=False), says="could not be switched on"),
    broken("device.unaccounted", device.memory, imagined_gpu, says="does not account for a tensor"),
    broken("libraries.unreachable", libraries.reachable, cuda_build, says="libcudnn.so.9, and would drop every GPU"),
    broken("training.noise", numerics.training, noise, says="the same 3 training steps gave different weights"),
)

if __name__ == "__main__":
    serve([fault.check for fault in BROKEN], Expectation())
