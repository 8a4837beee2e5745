"""TensorFlow is set up once for all tests, as a run sets it up."""

import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"

from train import runtime

runtime.prepare(threads=2)
