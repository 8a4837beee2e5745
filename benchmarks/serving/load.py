"""Loads ``python -m train serve`` and a plain FastAPI and Keras program by turns: requests per second, and latency.

    python -m benchmarks.serving.load RUN IMAGE [--peer FOLDER] [--seconds 5] [--rounds 5] [--out FILE]

Both run at the same time and get requests one after the other, in each round in the other order. A client is a thread
with one open connection, which sends its next request when it has the answer. Rates and latencies are medians of the
rounds, ratios those within a round. FOLDER has FastAPI, beside what this Python has:

    python -m pip install --target FOLDER fastapi

Measure on an idle machine: clients and servers share its cores.
"""

import argparse
import json
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final

from benchmarks.training.inputs import name_processor

ROOT: Final = Path(__file__).parents[2]
CLIENTS: Final = (1, 8, 64)
PORTS: Final = {"toolkit": 8811, "plain": 8812}
WARM_SECONDS: Final = 1.0


@dataclass(frozen=True)
class Sample:
    """What one round of one server gave."""

    rate: float  # requests a second
    median: float  # latency in seconds
    high: float  # the latency that 99 of 100 requests stay under


@contextmanager
def running(argv: Sequence[str], port: int, environment: Mapping[str, str]) -> Iterator[None]:
    process = subprocess.Popen(argv, cwd=ROOT, env={**os.environ, **environment})
    try:
        for _ in range(600):
            if process.poll() is not None:
                raise SystemExit(f"exit code {process.returncode}: {' '.join(argv)}")
            try:
                HTTPConnection("127.0.0.1", port, timeout=1).request("GET", "/health")
                break
            except OSError:
                time.sleep(0.1)
        yield
    finally:
        process.terminate()
        process.wait(60)


def make_body(image: bytes) -> tuple[dict[str, str], bytes]:
    mark = secrets.token_hex(16)
    head = f'--{mark}\r\nContent-Disposition: form-data; name="image"; filename="image"\r\n\r\n'
    headers = {"Content-Type": f"multipart/form-data; boundary={mark}"}
    return headers, head.encode() + image + f"\r\n--{mark}--\r\n".encode()


def load(port: int, image: bytes, clients: int, seconds: float) -> Sample:
    """Send requests by so many clients for some seconds. Any answer but 200 is an error."""
    headers, body = make_body(image)
    found: list[list[float]] = [[] for _ in range(clients)]
    failures: list[int] = []
    began = time.perf_counter()

    def send(latencies: list[float]) -> None:
        connection = HTTPConnection("127.0.0.1", port, timeout=60)
        while (start := time.perf_counter()) < began + seconds:
            connection.request("POST", "/predictions", body, headers)
            answer = connection.getresponse()
            answer.read()
            latencies.append(time.perf_counter() - start)
            if answer.status != 200:
                failures.append(answer.status)
                return

    threads = [threading.Thread(target=send, args=(each,)) for each in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - began
    if failures:
        raise SystemExit(f"port {port} answered with status {failures[0]}")
    latencies = sorted(latency for each in found for latency in each)
    return Sample(len(latencies) / took, statistics.median(latencies), latencies[int(0.99 * len(latencies))])


def compare(samples: Mapping[str, Sequence[Sample]]) -> dict[str, Any]:
    """Return medians of each server, and the median of the ratios within a round."""
    result: dict[str, Any] = {
        name: {
            "requests_per_second": round(statistics.median(each.rate for each in found), 1),
            "median_milliseconds": round(1000 * statistics.median(each.median for each in found), 2),
            "p99_milliseconds": round(1000 * statistics.median(each.high for each in found), 2),
        }
        for name, found in samples.items()
    }
    if len(samples) == 2:
        pairs = list(zip(samples["toolkit"], samples["plain"], strict=True))
        result["rate_ratio"] = round(statistics.median(one.rate / other.rate for one, other in pairs), 2)
        result["latency_ratio"] = round(statistics.median(one.median / other.median for one, other in pairs), 2)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("image", type=Path)
    parser.add_argument("--peer", type=Path, help="folder with FastAPI; without it, the server alone is measured")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    run, image = options.run.absolute(), options.image.read_bytes()
    with tempfile.TemporaryDirectory() as folder:
        export = [sys.executable, "-m", "train", "export", str(run), "--out", f"{folder}/export", "--format", "keras"]
        serve = [sys.executable, "-m", "train", "serve", str(run), "--port", str(PORTS["toolkit"])]
        names = ["toolkit", *(["plain"] if options.peer else [])]
        result: dict[str, Any] = {"processor": name_processor(), "load_before": os.getloadavg()[0]}
        if options.peer:
            subprocess.run(export, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        files = [f"{folder}/export/{name}" for name in ("model.keras", "labels.txt")]
        plain = [sys.executable, "benchmarks/serving/plain.py", *files, str(PORTS["plain"])]
        quiet = {"TF_CPP_MIN_LOG_LEVEL": "2"}
        with running(serve, PORTS["toolkit"], quiet):
            if options.peer:
                with running(plain, PORTS["plain"], {**quiet, "PYTHONPATH": str(options.peer.absolute())}):
                    result["clients"] = measure(names, image, options.seconds, options.rounds)
            else:
                result["clients"] = measure(names, image, options.seconds, options.rounds)
    result["load_after"] = os.getloadavg()[0]
    text = json.dumps(result, indent=1)
    print(text)
    if options.out:
        options.out.write_text(text + "\n", encoding="utf-8")


def measure(names: Sequence[str], image: bytes, seconds: float, rounds: int) -> dict[int, Any]:
    found = {}
    for clients in CLIENTS:
        samples: dict[str, list[Sample]] = {name: [] for name in names}
        for name in names:
            load(PORTS[name], image, clients, WARM_SECONDS)
        for number in range(rounds):
            for name in names if number % 2 else reversed(names):
                samples[name].append(load(PORTS[name], image, clients, seconds))
        found[clients] = compare(samples)
    return found


if __name__ == "__main__":
    main()
