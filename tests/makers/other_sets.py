import subprocess


def train_once(image: str) -> str:
    """Train for one epoch in a container, on the processor, and return what was said."""
    argv = ["docker", "run", "--rm", "--network=none", image, "digits", "--epochs", "1", "--progress", "plain"]
    trained = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert trained.returncode == 0, trained.stderr
    return trained.stderr + trained.stdout
