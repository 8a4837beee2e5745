"""Engines: a container engine, or this host. Both make environments and run jobs in them."""

from toolkit.engine.job import Engine, Environment, EnvironmentPlan, Job, Listener, Mount

__all__ = ["Engine", "Environment", "EnvironmentPlan", "Job", "Listener", "Mount"]
