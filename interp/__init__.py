"""Interventions on a decoder: sites, patches, exact sweeps, attribution estimates, lenses, presets."""
