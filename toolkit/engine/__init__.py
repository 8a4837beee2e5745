from toolkit.engine.job import Engine, Environment, EnvironmentPlan, Job, Listener, Mount

__all__ = ["Engine", "Environment", "EnvironmentPlan", "Job", "Listener", "Mount"]
