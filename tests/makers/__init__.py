"""What several test modules make: data, plans, wheels, flags."""
