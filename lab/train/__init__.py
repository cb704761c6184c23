"""Training: the spec of a run, its optimiser and schedule, the loop, and the recipe of the bundled models."""
