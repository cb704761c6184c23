"""Batches and hand-made models for the tests of circuits."""

import torch
from interp_models import VOCAB

from interp.circuits.batch import Batch
from lab.models import Decoder, ModelConfig


def batch(lengths=(5, 7, 7), seed=0, vocab=VOCAB) -> Batch:
    """Random pairs that differ in two tokens; shorter rows are padded."""
    g = torch.Generator().manual_seed(seed)
    pairs = []
    for n in lengths:
        clean = torch.randint(vocab, (n,), generator=g)
        corrupted = clean.clone()
        corrupted[1], corrupted[3] = (clean[1] + 3) % vocab, (clean[3] + 1) % vocab
        pairs.append((clean.tolist(), corrupted.tolist()))
    answers = torch.randint(vocab // 2, (len(lengths),), generator=g)
    return Batch.of(pairs, answers.tolist(), (answers + vocab // 2).tolist())


def copier() -> Decoder:
    """A hand-made attention-only model with one circuit: embed -> a0.h1.v, a0.h1 -> a1.h2.v, a1.h2 -> logits.

    Head a0.h1 moves the first token's content (and every other token's, in the mean) into a subspace of its own, head
    a1.h2 moves that into a third subspace, and the logits read only the third. Every other head writes into a subspace
    that nothing reads; queries and keys are zero, so attention is uniform and no edge enters through them.
    """
    vocab, wide = 4, 16  # four subspaces of four dimensions: tokens, first hop, second hop, unread
    cfg = ModelConfig(
        vocab_size=vocab, d_model=wide, n_layers=2, n_heads=3, n_kv_heads=3, d_head=4, d_mlp=0, context=16, tied=False,
        norm="none", positions="none", act="none",
    )  # fmt: skip
    model = Decoder(cfg).double().eval().requires_grad_(False)
    for p in model.parameters():
        p.zero_()
    g = torch.Generator().manual_seed(0)
    eye = torch.eye(4, dtype=torch.float64)
    model.model.embed_tokens.weight[:, :4] = eye
    model.lm_head.weight[:, 8:12] = eye
    for layer, read, write, working in ((0, 0, 4, 1), (1, 4, 8, 2)):
        attention = model.model.layers[layer].self_attn
        for head in range(3):
            rows = slice(4 * head, 4 * head + 4)
            if head == working:
                attention.v_proj.weight[rows, read : read + 4] = eye
                attention.o_proj.weight[write : write + 4, rows] = eye
            else:
                attention.v_proj.weight[rows] = torch.randn(4, wide, generator=g, dtype=torch.float64)
                attention.o_proj.weight[12:16, rows] = torch.randn(4, 4, generator=g, dtype=torch.float64)
    return model


COPIER_CIRCUIT = [("embed", "a0.h1.v"), ("a0.h1", "a1.h2.v"), ("a1.h2", "logits")]


def copier_batch() -> Batch:
    """Prompts whose clean answer is the token they repeat."""
    pairs = [([a, a, a, a], [b, b, b, b]) for a in range(4) for b in range(4) if a != b]
    return Batch.of(pairs, [a for (a, *_), _ in pairs], [b for _, (b, *_) in pairs])
