"""Models whose mechanism is known: what an analysis finds in them can be marked right or wrong."""
