"""Programs with short names, as `python -m train.plot`. Nothing imports them."""
