"""What runs where the training job runs, and knows that job alone."""
