"""The same measurement on two models, and along the checkpoints of one run."""
