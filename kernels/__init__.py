"""Triton kernels, one a file, each with its launcher, its gradient, its reference and its counts."""
