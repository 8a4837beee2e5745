"""Prints the processor and the speed of a large product of matrices on it, in GFLOP/s, in float32 and bfloat16."""

import json
import statistics
import sys
import time
from typing import Final

SIZE: Final = 2048
ROUNDS: Final = 9


def main() -> None:
    from train.step import runtime

    threads = int(sys.argv[1])
    processor = runtime.prepare(threads)["devices"][0]
    import tensorflow as tf

    found: dict[str, object] = {"processor": processor, "threads": threads}
    for dtype in ("float32", "bfloat16"):
        square = tf.cast(tf.random.stateless_normal((SIZE, SIZE), (1, 2)), dtype)
        multiply = tf.function(lambda x: tf.reduce_max(tf.matmul(x, x)))
        multiply(square).numpy()
        seconds = []
        for _ in range(ROUNDS):
            began = time.perf_counter()
            multiply(square).numpy()
            seconds.append(time.perf_counter() - began)
        found[dtype] = round(2 * SIZE**3 / statistics.median(seconds) / 1e9)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
