"""Features: sparse autoencoders and transcoders, their training, their measures, and what each feature does."""

from interp.features import store
from interp.features.dictionary import KINDS, TARGETS, Dictionary, Shape
from interp.features.store import Info, available, load, save, transcoders

__all__ = ["KINDS", "TARGETS", "Dictionary", "Info", "Shape", "available", "load", "save", "store", "transcoders"]
