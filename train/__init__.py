"""Trains DenseNet on small images: equal runs give equal bits, and an interrupted run can be resumed."""
