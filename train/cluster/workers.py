"""Connects the workers of one run by TensorFlow's collective operations.

Each device has one process, and gRPC connects the processes. Tensors travel through the memory of the hosts.

A thread checks the others every second by the health check of the collectives. gRPC's own threads answer it, so a
worker may be busy for hours and still answer. A frozen or unreachable one does not.
"""

import hashlib
import io
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from train.cluster.tf_config import VARIABLE, Cluster, read_whole
from train.errors import CheckError, PreflightError, ToolkitError, WorkerError
from train.step.runtime import FLAGS
from train.system.signals import StopSignal

if TYPE_CHECKING:
    import tensorflow as tf

    from train.record.checkpoint import Values

WAIT: Final = "TOOLKIT_WORKERS_WAIT"
"""Environment variable: for how many seconds a worker waits for the others to start."""

LONGEST_WAIT, SHORT_WAIT = 600, 300
"""Seconds for which workers wait for each other by default, and for which the chief of a finished run waits at most."""

SILENCE: Final = 10.0
"""Seconds without an answer after which a worker counts as lost."""

PERIOD: Final = 1.0
"""Seconds between two health checks."""

LINGER: Final = 30.0
"""Seconds for which a worker that noticed a loss stays, at most, so that the chief does not take it for lost too."""

_DIRECT: Final = "no_grpc_proxy"
"""gRPC's environment variable with the hosts that it reaches without a proxy."""

GROUP, ORDER, SLICES, PARTS, HELLO, DIGEST, LENGTH, CONTENT, FREE = range(1, 10)
"""Keys of the group of all workers, and of each kind of exchange.

The keys from `FREE` on are left to callers of `WorkerGroup.gather_in_graph`.
"""

KINDS: Final = ("data", "configuration", "code", "environment")
"""Names of the digests that workers exchange before the first step, because all must have the same."""

CODE: Final = (".py", ".yaml", ".cpp", ".h")


@cache
def digest_code() -> str:
    """Return the digest of the job's sources."""
    folder, state = Path(__file__).parents[1], hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.suffix in CODE):
        state.update(f"{path.relative_to(folder)}\0{path.stat().st_size}\0".encode() + path.read_bytes())
    return state.hexdigest()


def digest_environment(environment: Mapping[str, Any]) -> str:
    """Return the digest of the facts, apart from the processor, that the bits of a step depend on."""
    names = ["tensorflow", "numpy", "tf32", "flags", "kernels", *([] if environment.get("kernels") else ["threads"])]
    facts = {name: environment.get(name) for name in names}
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def configure(cluster: Cluster) -> None:
    """Make TensorFlow start its server for collectives with its devices, which it has not made yet."""
    import tensorflow as tf
    from tensorflow.python.eager import context

    hosts = [address.rpartition(":")[0] for address in cluster.addresses]
    os.environ[_DIRECT] = ",".join(hosts)
    current = context.context()
    current.configure_collective_ops(
        collective_leader=_name_task(0), device_filters=(f"/job:worker/task:{cluster.index}",)
    )
    spec = tf.train.ClusterSpec({"worker": list(cluster.addresses)})
    current.enable_collective_ops(
        tf.train.ServerDef(
            cluster=spec.as_cluster_def(),
            default_session_config=current.config,
            job_name="worker",
            task_index=cluster.index,
            protocol="grpc",
        )
    )
    try:
        with _muting():  # the server announces itself
            current.ensure_initialized()
    except tf.errors.OpError as error:
        raise PreflightError(
            f"{cluster.name(cluster.index)} cannot listen on its port",
            why=error.message.splitlines()[0],
            remedy="end the process that has the port, or give another: in TF_CONFIG, or for a Slurm job by --port",
        ) from error


@contextmanager
def _muting() -> Iterator[None]:
    """Drop what TensorFlow's libraries write to standard error."""
    sys.stderr.flush()
    saved, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(nowhere)


def _name_task(index: int) -> str:
    return f"/job:worker/replica:0/task:{index}"


class WorkerGroup:
    """All workers of a run, as one of them sees the others."""

    def __init__(self, cluster: Cluster, stop: StopSignal) -> None:
        self.cluster, self.stop = cluster, stop
        self.others = [index for index in range(len(cluster.addresses)) if index != cluster.index]
        self.lost: dict[int, str] = {}
        self._ended = threading.Event()

    @contextmanager
    def connected(self, digests: Sequence[str], *, threads: int) -> Iterator[bool]:
        """Wait for all workers, compare their digests, and watch them while the block runs.

        `threads`: the number of threads that this worker computes with. The chief of a finished run gives 0. Yields
        whether the run is finished. Raises a WorkerError if a worker does not come, and a CheckError if one of the
        digests, which `KINDS` names, is not the chief's.
        """
        wait = read_whole(os.environ, WAIT, LONGEST_WAIT)
        self._assemble(wait if threads else min(wait, SHORT_WAIT))
        thread = threading.Thread(target=self._watch, daemon=True)
        thread.start()
        try:
            yield self._compare_digests(digests, threads)
        except WorkerError:
            self._linger()
            raise
        finally:
            self._ended.set()
            thread.join()

    def all_gather_number(self, number: int) -> list[int]:
        """Return the numbers that all workers give."""
        import tensorflow as tf

        # Workers wait for each other here. If one is lost, a gather fails at all, and a scatter only at the chief.
        return [int(given) for given in self._gather(tf.constant([number]), ORDER).numpy()]

    def all_to_all(self, rows: "tf.Tensor") -> "tf.Tensor":
        """Return this worker's slice of the columns of all workers' rows, in order: (all rows, columns / workers).

        If the workers do not divide the columns, zeros follow the last one.
        """
        import tensorflow as tf
        from tensorflow.python.ops import collective_ops

        (row_count, columns), count = rows.shape, len(self.cluster.addresses)
        width = -(-columns // count)
        slices = tf.reshape(tf.pad(rows, [[0, 0], [0, count * width - columns]]), [row_count, count, width])
        with self.explaining(), tf.device("CPU:0"):
            result = collective_ops.all_to_all_v2(tf.transpose(slices, [1, 0, 2]), count, GROUP, SLICES)
            result.numpy()  # waits for the result, and raises its error here
        return tf.reshape(result, [count * row_count, width])

    def all_gather(self, part: "tf.Tensor") -> "tf.Tensor":
        """Return the parts that all workers give, one after the other."""
        return self._gather(part, PARTS)

    def relay_signal(self, numbers: Sequence[int]) -> None:
        """Stop this worker too if another has added the number of a signal."""
        for index in self.others:
            if numbers[index] and not self.stop.heard:
                self.stop.heard = f"{signal.Signals(numbers[index]).name} at {self.cluster.name(index)}"

    def require_equal_weights(self, digest: str, step: int) -> None:
        """Raise a CheckError that names each worker whose weights have another digest than the chief's."""
        chief, *digests = self._gather_digests([digest], DIGEST)
        other = [self.cluster.name(index) for index, theirs in enumerate(digests, start=1) if theirs != chief]
        if other:
            raise CheckError(
                f"{', '.join(other)} has other weights than the chief after step {step}",
                why="all workers compute the same update from the same gradients, so a processor or its memory erred",
                remedy="the same command goes on from the last checkpoint; leave that machine out",
            )

    def broadcast(self, values: "Values", facts: Mapping[str, Any]) -> tuple["Values", dict[str, Any]]:
        """Return the arrays and facts of the chief at each worker. What the other workers give is ignored."""
        import tensorflow as tf
        from tensorflow.python.ops import collective_ops

        buffer = io.BytesIO()
        if self.cluster.is_chief:
            about = np.frombuffer(json.dumps({"names": list(values), "facts": facts}).encode(), np.uint8)
            np.savez(buffer, about=about, **{str(index): value for index, value in enumerate(values.values())})
        content = buffer.getvalue()
        count = len(self.cluster.addresses)

        def send(part: bytes, words: int, key: int) -> bytes:
            with self.explaining(), tf.device("CPU:0"):
                if not self.cluster.is_chief:
                    received = collective_ops.broadcast_recv_v2([words], tf.int32, count, GROUP, key).numpy()
                    return bytes(received.tobytes())
                array = np.frombuffer(part.ljust(4 * words, b"\0"), np.int32)
                collective_ops.broadcast_send_v2(tf.constant(array), count, GROUP, key).numpy()
                return part

        length = int.from_bytes(send(len(content).to_bytes(8, "little"), 2, LENGTH), "little")
        content = send(content, -(-length // 4), CONTENT)[:length]
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            description = json.loads(arrays["about"].tobytes())
            return {name: arrays[str(index)] for index, name in enumerate(description["names"])}, description["facts"]

    def gather_in_graph(self, value: "tf.Tensor", key: int) -> "tf.Tensor":
        """Return the values of all workers in order, also in a graph. Only one exchange at a time may have a key."""
        import tensorflow as tf
        from tensorflow.python.ops import collective_ops

        with tf.device("CPU:0"):
            return collective_ops.all_gather_v2(tf.identity(value), len(self.cluster.addresses), GROUP, key)

    def _gather(self, value: "tf.Tensor", key: int) -> "tf.Tensor":
        with self.explaining():
            gathered = self.gather_in_graph(value, key)
            gathered.numpy()  # waits for the result, and raises its error here
            return gathered

    def _gather_digests(self, digests: Sequence[str], key: int, *, first: int = 0) -> list[str]:
        import tensorflow as tf

        words = np.frombuffer(bytes.fromhex("".join(digests)), np.int32)
        rows = self._gather(tf.constant([[self.cluster.index, first, *words]], tf.int32), key).numpy()
        if rows[:, 0].tolist() != list(range(len(rows))):
            raise RuntimeError("TensorFlow gathers workers in another order than their numbers")
        return [bytes(np.ascontiguousarray(row[1:]).tobytes()).hex() for row in rows]

    def _compare_digests(self, digests: Sequence[str], threads: int) -> bool:
        rows = self._gather_digests(digests, HELLO, first=threads)
        chief = rows[0]
        if not (threads := int.from_bytes(bytes.fromhex(chief[:8]), sys.byteorder)):
            return True
        for index, row in enumerate(rows[1:], start=1):
            for place, kind in enumerate(KINDS):
                start = 8 + 64 * place
                has, wanted = row[start : start + 64], chief[start : start + 64]
                if has != wanted:
                    raise CheckError(
                        f"{self.cluster.name(index)} has other {kind}: its digest is {has[:12]}, "
                        f"and that of the chief is {wanted[:12]}",
                        why="workers with different inputs do not train one model",
                        remedy=_REMEDIES[kind].format(threads=threads),
                    )
        return False

    def _assemble(self, wait: int) -> None:
        missing, began = list(self.others), time.monotonic()
        while missing := [index for index in missing if self._ask(index, 1.0)]:
            if time.monotonic() - began > wait:
                raise WorkerError(
                    f"{', '.join(map(self.cluster.name, missing))} did not come within {wait} s",
                    remedy=f"start all workers of {VARIABLE}, or name fewer; {WAIT} is the longest wait in seconds",
                )
            time.sleep(0.2)

    def _ask(self, index: int, seconds: float) -> str:
        """Ask another worker for a sign of life. Return why it counts as lost, or an empty text."""
        import tensorflow as tf
        from tensorflow.python.eager import context

        try:
            context.context().check_collective_ops_peer_health(_name_task(index), int(1000 * seconds))
        except tf.errors.DeadlineExceededError:
            return f"it has not answered for {seconds:.0f} s: frozen, or cut off from the network"
        except tf.errors.FailedPreconditionError:
            return "it was started again"
        except tf.errors.OpError:
            return "it has ended, or its machine is down"
        return ""

    def _look_for_lost(self, others: Sequence[int]) -> None:
        for index in others:
            reason = self.lost.get(index) or self._ask(index, SILENCE)
            if reason:
                self.lost[index] = reason

    def _watch(self) -> None:
        import tensorflow as tf
        from tensorflow.python.eager import context

        # The chief looks at all others, and they look at it: with many workers, all pairs would be too many.
        watched = self.others if self.cluster.is_chief else [0]
        while not self._ended.wait(PERIOD):
            self._look_for_lost(watched)
            if self.lost and not self._ended.is_set():
                context.context().abort_collective_ops(tf.errors.UNAVAILABLE, "a worker was lost")
                return

    @contextmanager
    def explaining(self) -> Iterator[None]:
        """Turn a failed collective into a WorkerError that names who was lost; an error of this worker stays."""
        import tensorflow as tf

        try:
            yield
        except tf.errors.OpError as error:
            # What a collective can raise when a worker is lost, which may be seen some seconds later.
            kinds = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError)
            is_remote = isinstance(error, (*kinds, tf.errors.DeadlineExceededError))
            deadline = time.monotonic() + SILENCE
            self._look_for_lost(self.others)
            while is_remote and not self.lost and time.monotonic() < deadline:
                time.sleep(0.1)
                self._look_for_lost(self.others)
            lost = dict(self.lost)
            if not (lost or is_remote):
                raise
            raise WorkerError(
                f"{', '.join(map(self.cluster.name, lost)) or 'a worker'} was lost",
                why="; ".join(dict.fromkeys(lost.values())) or error.message.splitlines()[0],
                remedy="the same command goes on from the last checkpoint, with as many workers or fewer",
            ) from error

    def wait_for_others(self) -> None:
        """Wait until the other workers have ended, because they would take this one for lost."""
        self._outlast(self.others, SILENCE)

    def _linger(self) -> None:
        if not self.cluster.is_chief:  # the chief would take this worker for the lost one
            self._outlast([0], LINGER)

    def _outlast(self, others: Sequence[int], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not all(self._ask(index, 1.0) for index in others):
            time.sleep(0.1)


_REMEDIES: Final = {
    "configuration": "give the same options to all workers",
    "data": "give the same --data-dir, with the same files, on all machines",
    "code": "install the same version on all machines",
    "environment": "give all workers --threads {threads}, as the chief has, unless their kernels are native; they need "
    f"one TensorFlow, the same kernels, and the same XLA and oneDNN variables: {', '.join(FLAGS)}",
}


def dismiss(cluster: Cluster) -> None:
    """Tell the other workers, as the chief, that the run is finished already. They may have ended before."""
    configure(cluster)
    group = WorkerGroup(cluster, StopSignal())
    with suppress(WorkerError), group.connected(["0" * 64] * len(KINDS), threads=0):
        group.wait_for_others()


@contextmanager
def ending(end: Callable[[int], None], group: WorkerGroup | None) -> Iterator[None]:
    """Call `end` with the exit code of the block, so that the other workers end with it too."""
    try:
        yield
    except WorkerError:
        raise
    except ToolkitError as error:
        with suppress(WorkerError):
            end(error.exit_code)
        if group:
            group.wait_for_others()
        raise
    with suppress(WorkerError):  # the run is finished, and needs no other worker any more
        end(0)
