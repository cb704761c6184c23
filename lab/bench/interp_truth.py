"""Trained models of known mechanism: that they are what is claimed of them."""

import time

import torch

from lab import models, records
from lab.bench import bench


@bench("interp_truth")
def grokking() -> None:
    """The bundled modular addition, measured anew from its weights; along the way, from its recorded curves."""
    from interp.truth import fourier
    from interp.truth.grokking import story
    from interp.truth.modular import split

    told = story()
    train, test = split(told.spec)
    last = fourier.progress(models.load("grokking", dtype=torch.float32).model, train, test, told.keys)
    kept = [(e, fourier.progress(told.model(e), train, test, told.keys)) for e in told.saved]
    by_25000 = [(e, float(row["test_loss"])) for e, row in kept if e <= 25_000]
    records.write(
        "interp.grokking.test_loss", min(loss for _, loss in by_25000), "nats", bar=1e-3,
        note="8,939 pairs never seen, the best of the kept epochs up to 25,000",
        detail={"by_epoch": dict(by_25000), "last": float(last["test_loss"]), "seed": told.spec.seed},
    )  # fmt: skip
    early = {e: row for e, row in kept if e <= 1000}
    records.write(
        "interp.grokking.memorised_train_loss", float(early[1000]["train_loss"]), "nats", bar=1e-4,
        note="3,830 training pairs at epoch 1,000, of weights kept at eight bits",
    )  # fmt: skip
    records.write(
        "interp.grokking.memorised_test_loss", float(early[1000]["test_loss"]), "nats", bar=20, better="higher",
        note="the pairs never seen, at the same epoch",
    )  # fmt: skip
    records.write(
        "interp.grokking.five_frequencies", fourier.share_of_largest(last["embedding"]), "of the embedding's squared norm",
        bar=0.95, better="higher", note="the five strongest Fourier frequencies of the last epoch; the constant left out",
        detail={"key_frequencies_of_the_logits": told.keys, "at_the_start": fourier.share_of_largest(told.spectra["embedding"][0].square())},
    )  # fmt: skip


@bench("interp_truth")
def superposition() -> None:
    """The four shapes, each from five seeds."""
    from interp.truth.superposition import SHAPES, dimensionality, settle

    worst = {}
    seconds = []
    for shape in SHAPES:
        errors = []
        for seed in range(5):
            began = time.perf_counter()
            errors.append(float((dimensionality(settle(shape, seed)) - shape.dimensionality).abs().max()))
            seconds.append(time.perf_counter() - began)
        worst[shape.title.replace(" ", "_")] = max(errors)
    records.write_cases(
        "interp.superposition.worst_error", worst, "of a dimension", bar=0.02,
        note="largest difference of a feature's dimensionality from the geometry's, five seeds",
    )  # fmt: skip
    records.write("interp.superposition.seconds", max(seconds), "s", bar=2.0, note="the slowest of the shapes to train")


@bench("interp_truth")
def induction() -> None:
    """The bundled induction model on fresh texts."""
    from interp.truth import induction as known

    model, length = models.load("induction", dtype=torch.float32).model, 16
    texts = known.repeated(256, length, torch.Generator().manual_seed(77))
    previous, found = known.scores(known.patterns(model, texts), length)
    head = int(previous[0].argmax())
    with torch.no_grad():
        whole = known.losses(model(texts), texts, length)
    cut = known.losses(known.ablated(model, texts, [(0, head)]), texts, length)
    records.write(
        "interp.induction.score", float(found[1].max()), "of the attention", bar=0.7, better="higher",
        note="best head of layer 1, on the word after the present one's first showing; 256 repeated texts",
        detail={"previous_token_head": head, "previous_token_score": float(previous[0, head]), "all_heads": found.tolist()},
    )  # fmt: skip
    records.write(
        "interp.induction.loss_without_previous_head", cut["second_loss"], "nats a word", bar=3.0, better="higher",
        compared=f"{whole['second_loss']:.3f} whole; a guess among forty words is 3.7",
        note="second copy, free words, with the previous-token head silenced",
    )  # fmt: skip
