"""What is done with finished runs: predict, evaluate, explain, export and compare."""
