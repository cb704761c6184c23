"""Linear probes with controls, and whether what they find is used."""
