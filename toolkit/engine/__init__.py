"""Where things run: a container engine, or this host. Both do the same two things."""

from toolkit.engine.job import Job, Listener, Mount
from toolkit.engine.protocol import Engine, Environment, EnvironmentPlan

__all__ = ["Engine", "Environment", "EnvironmentPlan", "Job", "Listener", "Mount"]
