"""Change a model on purpose: find the heads that carry a fact, write another answer into them, steer."""
