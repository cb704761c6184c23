"""Small random models and a word tokenizer for the interpretability tests."""

from pathlib import Path
from types import SimpleNamespace

import tokenizers
import torch

from interp.prompts import Pair, align
from lab.models import Decoder, ModelConfig, Tokenizer

WORDS = ["<s>", "the", "a", "great", "tall", "Eiffel", "Tokyo", "tower", "stands", "in", "city", "of", "Paris", "Rome", "New", "York", "on", "by", "."]
VOCAB = len(WORDS)


def decoder(seed: int = 0, dtype: torch.dtype = torch.float64, **more) -> Decoder:
    """A random decoder with weights large enough that a patch matters."""
    shape = dict(vocab_size=VOCAB, d_model=24, n_layers=3, n_heads=4, n_kv_heads=2, d_head=6, d_mlp=40, context=32)
    model = Decoder(ModelConfig(**shape | more)).init_weights(seed).to(dtype).eval().requires_grad_(False)
    generator = torch.Generator().manual_seed(seed)
    for p in model.parameters():
        noise = torch.randn(p.shape, generator=generator, dtype=torch.float64).to(dtype)
        p.copy_(0.25 * noise if p.dim() > 1 else 1 + 0.2 * noise)
    return model


def word_tokenizer(directory: Path) -> Tokenizer:
    """One token a word; "New York" is two."""
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="<s>"))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    inner.save(str(directory / "tokenizer.json"))
    return Tokenizer(directory)


def language_model(directory: Path, **more) -> SimpleNamespace:
    """What `lab.models.load` gives, around a random decoder."""
    model = decoder(**more)
    return SimpleNamespace(name="random", model=model, config=model.cfg, tokenizer=word_tokenizer(directory))


def pair_of(clean: list[int], corrupted: list[int], answer: int = 5, wrong: int = 6) -> Pair:
    """A pair from token ids alone."""
    return Pair(
        "", "", "", "", clean, corrupted, [WORDS[i] for i in clean], [WORDS[i] for i in corrupted], answer, wrong,
        align(clean, corrupted),
    )  # fmt: skip
