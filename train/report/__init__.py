"""What people look at: curves, confusions, sample images and the model card."""
