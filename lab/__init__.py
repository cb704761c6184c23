"""The shared library behind the notebooks."""
