"""The training job: DenseNet on small images, exact, repeatable to the bit, and resumable at any moment.

Runs alone (``python -m train DATASET``), in the image, and under ``toolkit train``. ``train.config`` and ``train.cli``
import no TensorFlow, so that a command line can be read and refused at once.
"""
