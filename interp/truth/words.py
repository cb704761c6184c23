"""A tokenizer for models of a few words: every word is a token, words are set apart by spaces."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from lab.models.tokenizer import Tokenizer


def write_tokenizer(directory: Path, words: Sequence[str]) -> Tokenizer:
    """Write `tokenizer.json` for these words, the first the token 0, and return it."""
    from tokenizers import Tokenizer as Inner
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit

    if len(set(words)) != len(words):
        raise ValueError("two of the words are the same")
    inner = Inner(WordLevel({word: i for i, word in enumerate(words)}))
    inner.pre_tokenizer = WhitespaceSplit()
    directory.mkdir(parents=True, exist_ok=True)
    inner.save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 1024}))
    return Tokenizer(directory)
