"""Train DenseNet on small images: exactly, repeatably to the bit, and resumable at any moment.

It runs alone (``python -m train DATASET``), in the image, and under ``toolkit train``. ``train.config`` and
``train.cli`` import no TensorFlow, so that a bad command line is refused at once.
"""
