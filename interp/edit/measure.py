"""What an edit does: does the answer move, what else moves, and what it costs in perplexity."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from interp.edit.landmarks import CHOOSING, COUNTRY, HELD_OUT, LEADS, Landmark, Question, sentence
from interp.edit.rows import Rows, ask, in_batches
from interp.edit.write import Editor
from interp.metrics import at_least_fp32
from lab.evals.stats import grouped

Move = tuple[Landmark, str]  # a landmark and the city it is to stand in


@dataclass(frozen=True)
class Trial:
    """One prompt before and after: the likeliest token and the probability of the wanted answer (the target city for
    an edit, the right answer for a question that should stay as it is)."""

    subject: str
    city: str
    target: str
    prompt: str
    before: int
    after: int
    p_before: float
    p_after: float
    wanted: int

    @property
    def moved(self) -> bool:
        return self.after == self.wanted

    @property
    def changed(self) -> bool:
        return self.after != self.before


def answered(lm, marks: Sequence[Landmark], phrasings: Sequence[str] = HELD_OUT) -> dict[Landmark, list[str]]:
    """The prompts among these phrasings that the unedited model answers with each landmark's city."""
    asked = [(mark, sentence(phrasing, mark.subject)) for mark in marks for phrasing in phrasings]
    top = ask(lm, [text for _, text in asked]).top.tolist()
    found: dict[Landmark, list[str]] = {mark: [] for mark in marks}
    for (mark, text), token in zip(asked, top):
        if token == lm.tokenizer.single(f" {mark.city}"):
            found[mark].append(text)
    return found


def edited(lm, editor: Editor, asked: Sequence[tuple[Move, str, int]], progress: Callable[[float], None] | None = None) -> list[Trial]:
    """Every (move, prompt, wanted token) before and after its edit."""
    prompts = [text for _, text, _ in asked]
    subjects = [mark.subject for (mark, _), _, _ in asked]
    watch = [wanted for _, _, wanted in asked]

    def hooks(part: list[int], rows: Rows):
        return editor.writer(rows, [asked[i][0][1] for i in part]).hooks

    def half(start: float) -> Callable[[float], None] | None:
        return (lambda share: progress(start + share / 2)) if progress else None

    before = ask(lm, prompts, watch=watch, progress=half(0))
    after = ask(lm, prompts, hooks, subjects, watch, half(0.5))
    assert before.watched is not None and after.watched is not None
    numbers = zip(before.top.tolist(), after.top.tolist(), before.watched.tolist(), after.watched.tolist())
    return [
        Trial(mark.subject, mark.city, city, text, old, new, p_old, p_new, wanted)
        for ((mark, city), text, wanted), (old, new, p_old, p_new) in zip(asked, numbers)
    ]


def moves(lm, editor: Editor, prompts: dict[Landmark, list[str]], cities: dict[Landmark, list[str]],
          progress: Callable[[float], None] | None = None) -> list[Trial]:  # fmt: skip
    """Every prompt of every landmark under each of its target cities; the wanted answer is that city."""
    asked = [
        ((mark, city), text, lm.tokenizer.single(f" {city}"))
        for mark, texts in prompts.items() for city in cities[mark] for text in texts
    ]  # fmt: skip
    return edited(lm, editor, asked, progress)


def bystanders(lm, editor: Editor, plan: Sequence[Move], questions: Sequence[Question], mention: bool, seed: int = 0,
               each: int = 4) -> list[Trial]:  # fmt: skip
    """`each` unrelated questions under every edit, those the model gets right; with `mention` the subject is spoken of
    in a sentence before the question, so that the edit has something to fire on."""
    rng = random.Random(seed)
    asked = []
    for mark, city in plan:
        for question in rng.sample(list(questions), min(each, len(questions))):
            lead = sentence(rng.choice(LEADS), mark.subject) if mention else ""
            asked.append(((mark, city), lead + question.text, question.answer_id))
    return [trial for trial in edited(lm, editor, asked) if trial.before == trial.wanted]


def neighbours(lm, editor: Editor, plan: Sequence[Move], landmarks: Sequence[Landmark]) -> list[Trial]:
    """Other landmarks of the same city, asked for after the moved one is spoken of; their city should stay."""
    asked = []
    for mark, city in plan:
        for other in landmarks:
            if other.city == mark.city and other != mark and other.right:
                text = sentence(LEADS[0], mark.subject) + sentence(CHOOSING[other.right[0]], other.subject)
                asked.append(((mark, city), text, lm.tokenizer.single(f" {other.city}")))
    return [trial for trial in edited(lm, editor, asked) if trial.before == trial.wanted]


def countries(lm, editor: Editor, plan: Sequence[Move], landmarks: Sequence[Landmark]) -> list[Trial]:
    """The subject's country, where the model knows it; the wanted answer is the target city's country, since a
    landmark that has really moved stands in another country too (Cohen et al. 2023)."""
    lies_in = {m.city: m.country for m in landmarks}
    first = {c: lm.tokenizer.encode(f" {c}")[0] for c in {m.country for m in landmarks}}
    asked = [
        ((mark, city), sentence(COUNTRY, mark.subject), first[lies_in[city]])
        for mark, city in plan if first[lies_in[city]] != first[mark.country]
    ]  # fmt: skip
    home = {mark.subject: first[mark.country] for mark, _ in plan}
    return [trial for trial in edited(lm, editor, asked) if trial.before == home[trial.subject]]


# ---- perplexity


@dataclass(frozen=True)
class Losses:
    """Nats a token, summed over each document, before and after the edit, and how many tokens were read."""

    before: Tensor
    after: Tensor
    tokens: Tensor

    def perplexity(self) -> tuple[float, float]:
        total = self.tokens.sum()
        return tuple(float((x.sum() / total).exp()) for x in (self.before, self.after))  # type: ignore[return-value]

    def ratio(self, draws: int = 4000, seed: int = 0) -> tuple[float, float, float]:
        """Perplexity after over before, with its 95% interval (bootstrap over documents)."""
        generator = torch.Generator().manual_seed(seed)
        picks = torch.randint(len(self.tokens), (draws, len(self.tokens)), generator=generator)
        more = ((self.after - self.before)[picks].sum(1) / self.tokens[picks].sum(1)).exp()
        low, high = torch.quantile(more, torch.tensor([0.025, 0.975], dtype=more.dtype)).tolist()
        return float(((self.after - self.before).sum() / self.tokens.sum()).exp()), low, high


@torch.no_grad()
def losses(lm, editor: Editor, plan: Sequence[Move], texts: Sequence[str], mention: bool, longest: int = 96) -> Losses:
    """Loss on texts under the edits of `plan` in turn; with `mention` a sentence about the subject stands before each
    text, whose own tokens are not counted."""
    chosen = [plan[i % len(plan)] for i in range(len(texts))]
    whole, skip = [], []
    for i, (text, (mark, _)) in enumerate(zip(texts, chosen)):
        lead = sentence(LEADS[i % len(LEADS)], mark.subject) if mention else ""
        skip.append(len(lm.tokenizer.encode(lead)) if lead else 1)
        whole.append(lm.tokenizer.decode(lm.tokenizer.encode(lead + text)[:longest]))
    found = torch.zeros(3, len(texts), dtype=torch.float64)
    for part, rows in in_batches(lm, whole, [mark.subject for mark, _ in chosen]):
        hooks = editor.writer(rows, [chosen[i][1] for i in part]).hooks
        for which, given in enumerate((None, hooks)):
            logprobs = at_least_fp32(lm.model(rows.tokens, hooks=given)).log_softmax(-1)
            nats = -logprobs[:, :-1].gather(-1, rows.tokens[:, 1:, None])[..., 0].double().cpu()
            for row, i in enumerate(part):
                found[which, i] = nats[row, skip[i] - 1 : rows.lengths[row] - 1].sum()
                found[2, i] = rows.lengths[row] - skip[i]
    return Losses(*found)


# ---- shares with intervals


def share(hits: Sequence[bool], groups: Sequence[str]) -> tuple[float, float, float]:
    """Share of hits with its 95% interval, drawing whole groups (facts) since prompts about one of them go together."""
    if not hits:
        return float("nan"), float("nan"), float("nan")
    found = grouped(hits, groups)
    return found.value, found.low, found.high


def moved(trials: Sequence[Trial]) -> tuple[float, float, float]:
    """Share of trials whose answer is the wanted one afterwards, with its interval over subjects."""
    return share([t.moved for t in trials], [t.subject for t in trials])


def changed(trials: Sequence[Trial]) -> tuple[float, float, float]:
    """Share of trials whose answer is another one afterwards, with its interval over subjects."""
    return share([t.changed for t in trials], [t.subject for t in trials])


def by_subject(trials: Sequence[Trial]) -> Iterator[tuple[str, list[Trial]]]:
    """Trials of each subject together, in order of appearance."""
    groups: dict[str, list[Trial]] = {}
    for trial in trials:
        groups.setdefault(trial.subject, []).append(trial)
    yield from groups.items()
