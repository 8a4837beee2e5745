"""What every part of the toolkit stands on: errors, the console, files, digests, signatures, and other programs."""
