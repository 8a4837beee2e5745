import os
import time

import pytest

from rehearsal import audit
from rehearsal.request import Request, choose_device
from train.cli import parse

JOB = Request(config=parse(["digits", "--depth", "10"]), device=choose_device("t4"))

# Adds an operation without a GPU kernel to the results of the job's evaluation.
PLANT = """
import tensorflow as tf
from train.step import evaluation
from rehearsal import audit
make = evaluation.make_evaluation_step
def spoil(*arguments):
    made = make(*arguments)
    return lambda images: tf.raw_ops.NthElement(input=tf.cast(made(images), tf.float32), n=0)
evaluation.make_evaluation_step = spoil
raise SystemExit(audit.answer())
"""


@pytest.mark.slow
def test_a_planted_operation_is_found_in_another_process() -> None:
    with audit.running(JOB, program=("-c", PLANT)) as finish:
        training, evaluation = finish()["graphs"]
    assert training["nodes"] > 50
    assert not training["findings"]
    assert ("kernel", "NthElement") in [(each["kind"], each["operation"]) for each in evaluation["findings"]]


def test_an_audit_that_fails_says_why() -> None:
    with audit.running(JOB, program=("-c", "raise SystemExit('no such kernel table')")) as finish:
        assert finish() == {"error": "no such kernel table"}


def test_an_audit_that_nobody_waits_for_is_ended() -> None:
    started = time.monotonic()
    program = "import os, sys, time; print(os.environ['CUDA_VISIBLE_DEVICES'], flush=True); time.sleep(60)"
    with audit.running(JOB, program=("-c", program)):
        pass
    assert time.monotonic() - started < 30
    assert os.environ.get("CUDA_VISIBLE_DEVICES") != "-1"
