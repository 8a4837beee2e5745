"""Trains DenseNet on small images.

Equal runs give equal bits, and an interrupted run can be resumed. It runs alone (``python -m train DATASET``), in the
image, and under ``toolkit train``. ``train.config`` and ``train.cli`` import no TensorFlow, so a bad command line is
refused at once.
"""
