"""Assembles PTX for a GPU by ptxas, several texts at a time, and keeps the results for later grafts.

A result is kept by the digests of the PTX and of ptxas, the GPU and the options. So grafts of other versions share it,
and one that was interrupted goes on where it stopped. ptxas writes the same bytes each time.
"""

import re
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from toolkit import diagnosis
from toolkit.base import digest, files, programs, seals
from toolkit.base.errors import BuildError
from toolkit.base.processes import DISK_FULL, describe_full_disk
from train.cores import count_cores
from train.system import memory
from train.system.progress import Work

OPTIONS: Final = ("-O3",)
_SECONDS: Final = 1800
"""Time limit of one text; the longest of TensorFlow's takes 33 s."""
_MEMORY: Final = 600 << 20
"""Bytes that one ptxas may need; the largest of TensorFlow's texts takes 472 MB."""
_TARGET = re.compile(rb"^(\.target sm_\d+)([af])(?=[\s,])", re.MULTILINE)
_NUMBER = re.compile(rb"^\.target sm_(\d+)", re.MULTILINE)
_MARK_BYTES: Final = 32
_PURPOSE: Final = "a result of ptxas"


@dataclass(frozen=True, kw_only=True)
class Assembler:
    ptxas: Path
    digest: str  # of its bytes
    cache: Path  # folder of earlier results

    def locate(self, text: str, architecture: int) -> Path:
        """Return the file of a result, by the digest of the PTX."""
        key = digest.digest_value(["cubin", text, self.digest, list(OPTIONS), architecture])
        return self.cache / f"sm_{architecture}" / key.removeprefix("sha256:")


@dataclass(frozen=True, kw_only=True)
class PtxModule:
    """A PTX module of a wheel, which one or more of its fat binaries hold."""

    digest: str
    size: int  # bytes
    read: Callable[[], bytes]


@dataclass
class Assembled:
    cubins: dict[str, Path] = field(default_factory=dict)  # file of the result by the digest of the PTX
    refused: dict[str, str] = field(default_factory=dict)  # message of ptxas for each PTX that it does not take
    reused: int = 0  # results of earlier grafts


def drop_gpu_suffix(text: bytes) -> bytes:
    """Return PTX without the suffix of its target, as in ``sm_90a``, with a blank in its place.

    PTX with a suffix is for one GPU alone. If it uses a feature that only that GPU has, ptxas refuses it without the
    suffix.
    """
    return _TARGET.sub(rb"\1 ", text, count=1)


def has_no_gpu_suffix(text: bytes) -> bool:
    return _TARGET.search(text) is None


def read_target(text: bytes) -> int:
    """Return the GPU that PTX is for, such as 90; 0 if it names none."""
    match = _NUMBER.search(text)
    return int(match[1]) if match else 0


def assemble(
    assembler: Assembler, texts: Iterable[PtxModule], architecture: int, progress: Callable[[Work], object]
) -> Assembled:
    """Assemble PTX, several texts at a time. ``progress`` is told how many bytes of it are done.

    An interrupt ends every ptxas. Raises BuildError if ptxas cannot run, is killed, or takes too long, and
    PreflightError if the cache cannot be written.
    """
    seals.make_key()
    done, waiting = Assembled(), []
    every = sorted(texts, key=lambda text: (-text.size, text.digest))  # a long one at the end would be waited for
    for text in every:
        file = assembler.locate(text.digest, architecture)
        if _is_whole(file):
            done.cubins[text.digest] = file
            done.reused += 1
        else:
            waiting.append(text)
    folder = assembler.cache / f"sm_{architecture}"
    files.require_writable(folder)
    running = _Running()
    # What a killed graft left in such a folder is removed by the next one.
    with (
        files.stage(folder, digest.shorten(digest.digest_value(["cubin", architecture]))) as staging,
        ThreadPoolExecutor(count_workers()) as pool,
    ):
        jobs = {pool.submit(_assemble, assembler, text, architecture, running, staging.path): text for text in waiting}
        try:
            # The time of a text goes by its length, and the longest come first.
            size, total = 0, sum(text.size for text in waiting)
            progress(Work("", size, total, "bytes"))
            for count, job in enumerate(as_completed(jobs), len(every) - len(waiting) + 1):
                text, refusal = jobs[job], job.result()
                size += text.size
                if refusal:
                    done.refused[text.digest] = refusal
                else:
                    done.cubins[text.digest] = assembler.locate(text.digest, architecture)
                progress(Work(f"{count} of {len(every)} PTX modules", size, total, "bytes"))
        except BaseException:
            running.stop()
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return done


def count_workers() -> int:
    """Return how many ptxas run at a time: as many as there are cores, and fewer where memory is small."""
    return max(1, min(count_cores(), memory.read_free() // _MEMORY))


class _Running:
    """The processes that run, so that an interrupt can end them."""

    def __init__(self) -> None:
        self._door = threading.Lock()
        self._processes: set[subprocess.Popen[str]] = set()
        self._stopped = False

    def run(self, argv: list[str]) -> tuple[int, str]:
        with self._door:
            if self._stopped:
                return -1, ""
            # In a session of its own, so that a Ctrl-C reaches this program first.
            program = programs.assembler(argv)
            process = subprocess.Popen(
                program.argv,
                env=program.variables,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
            self._processes.add(process)
        try:
            output, _ = process.communicate(timeout=_SECONDS)
            return process.returncode, output
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
            with self._door:
                self._processes.discard(process)

    def stop(self) -> None:
        with self._door:
            self._stopped = True
            for process in self._processes:
                process.kill()


def _assemble(assembler: Assembler, text: PtxModule, architecture: int, running: _Running, work: Path) -> str:
    """Assemble one text into the cache. Return the message of ptxas if it refuses the text, else an empty text."""
    target = assembler.locate(text.digest, architecture)
    with tempfile.TemporaryDirectory(dir=work) as folder:
        source, result = Path(folder, "kernels.ptx"), Path(folder, "kernels.cubin")
        try:
            source.write_bytes(text.read())
            argv = [str(assembler.ptxas), *OPTIONS, f"-arch=sm_{architecture}", str(source), "-o", str(result)]
            code, output = running.run(argv)
            if code == 0:
                write_result(target, result.read_bytes())
                return ""
        except subprocess.TimeoutExpired as error:
            raise BuildError(
                f"ptxas did not end within {_SECONDS // 60} minutes", remedy="run the same command again"
            ) from error
        except OSError as error:
            raise BuildError(f"ptxas cannot run: {error.strerror or error}", why=str(assembler.ptxas)) from error
    if DISK_FULL.search(output):
        raise describe_full_disk(f"of {assembler.cache} filled up")
    if code < 0:
        message = f"ptxas was ended by signal {-code}"
        cause = diagnosis.name_cause(f"{message}\n{output}", certain=False)
        raise BuildError(
            message,
            why="most often because memory ran out" if code == -9 else output[-500:],
            remedy=f"run the same command again when more memory is free: it goes on where it stopped\n{cause}".strip(),
        )
    return output.strip()[:500] or f"exit code {code}"


def write_result(file: Path, cubin: bytes) -> None:
    """Keep a result with this user's mark before it: it becomes a part of wheels."""
    files.write_atomically(file, bytes.fromhex(seals.mark(_PURPOSE, _describe(file, cubin))) + cubin)


def read_result(file: Path) -> bytes:
    """Return a result. Raises ValueError if it is damaged or not this user's, and OSError if it cannot be read."""
    data = file.read_bytes()
    mark, cubin = data[:_MARK_BYTES], data[_MARK_BYTES:]
    if not seals.holds(_PURPOSE, _describe(file, cubin), mark.hex()):
        raise ValueError(f"{file} is damaged, or this user has not made it")
    return cubin


def _describe(file: Path, cubin: bytes) -> list[str]:
    return [file.parent.name, file.name, digest.digest_bytes(cubin)]


def _is_whole(file: Path) -> bool:
    try:
        return bool(read_result(file))
    except (OSError, ValueError):
        return False
