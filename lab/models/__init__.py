"""Language models: one decoder, read and written in the Hugging Face layout."""

from .cache import KVCache
from .config import ModelConfig
from .decoder import Decoder
from .load import LM, ModelInfo, available, load, save
from .tokenizer import Tokenizer

__all__ = ["LM", "Decoder", "KVCache", "ModelConfig", "ModelInfo", "Tokenizer", "available", "load", "save"]
