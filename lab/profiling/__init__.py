"""What this machine can do, and where the time of a step goes."""
