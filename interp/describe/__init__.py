"""Neurons in words: descriptions proposed, then scored by what they predict on text they were not made from.

The method is that of Bills et al. 2023 ("Language models can explain neurons in language models"): a describer sees
where a neuron is active and writes a description; a simulator sees only the description and text, and says how active
the neuron should be; the score is the correlation with how active it is.
"""
