"""What each layer would say: the logit lens, the tuned lens, patchscopes."""
