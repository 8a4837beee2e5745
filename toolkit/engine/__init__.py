"""Where things run: a container engine, or this host. Both do the same two things."""

from toolkit.engine.job import Completed, Job, Mount
from toolkit.engine.protocol import Engine, Environment, EnvironmentPlan

__all__ = ["Completed", "Engine", "Environment", "EnvironmentPlan", "Job", "Mount"]
