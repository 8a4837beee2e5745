"""Trains DenseNet on small images: equal runs give equal bits, and an interrupted run can be resumed.

``train.config`` and ``train.cli`` import no TensorFlow, so a bad command line is refused at once.
"""
