"""Graders: pure functions of a sample and what the model said. Each says why."""

import re
import unicodedata
from collections.abc import Callable, Sequence
from difflib import SequenceMatcher

from lab.errors import LabError
from lab.evals.task import Grade, Sample

Grader = Callable[[Sample, str, Sequence[tuple[str, float]]], Grade]

FAILURES = {
    "another of its kind": "names a different answer to the same kind of question",
    "misspelt": "nearly the right word",
    "too late": "names the answer, but not first",
    "echo": "says a word of the prompt again",
    "no answer": "stops before saying anything",
    "something else": "goes on with other words",
}


def normalise(text: str) -> str:
    """Lower case, accents and punctuation dropped, leading article dropped, single spaces."""
    plain = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
    words = re.sub(r"[^\w\s]", " ", plain.casefold()).split()
    if len(words) > 1 and words[0] in ("the", "a", "an"):
        words = words[1:]
    return " ".join(words)


def exact(sample: Sample, completion: str, choice: Sequence[tuple[str, float]] = ()) -> Grade:
    """Right when the completion, without the spaces around it, is an answer letter for letter."""
    said = completion.strip()
    if said in sample.answers:
        return Grade(True, f"“{said}” is the answer, letter for letter")
    return Grade(
        False, f"“{said}” is not letter for letter {_listed(sample.answers)}", failure(sample, completion)
    )


def starts(sample: Sample, completion: str, choice: Sequence[tuple[str, float]] = ()) -> Grade:
    """Right when the completion begins with an answer, whole words, after `normalise` on both."""
    said = normalise(completion)
    for answer in sample.answers:
        wanted = normalise(answer)
        if said == wanted or said.startswith(wanted + " "):
            return Grade(True, f"begins with “{answer}”" if said != wanted else f"is “{answer}”")
    kind = failure(sample, completion)
    return Grade(False, f"does not begin with {_listed(sample.answers)}: {FAILURES[kind]}", kind)


def likeliest(sample: Sample, completion: str, choice: Sequence[tuple[str, float]]) -> Grade:
    """Right when the model finds an answer likeliest among the options, log-likelihood per token."""
    if not choice:
        raise LabError(f"Sample {sample.id} has no options to choose from; use another grader for this task.")
    ranked = sorted(choice, key=lambda item: -item[1])
    best = ranked[0][0]
    if best in sample.answers:
        gap = (
            f", {ranked[0][1] - ranked[1][1]:.2f} nats a token ahead of “{ranked[1][0]}”"
            if len(ranked) > 1
            else ""
        )
        return Grade(True, f"finds “{best}” likeliest of {len(ranked)}{gap}")
    return Grade(False, f"finds “{best}” likelier than {_listed(sample.answers)}", "another of its kind")


GRADERS: dict[str, Grader] = {"exact": exact, "starts": starts, "choice": likeliest}


def grader(name: str) -> Grader:
    """The grader of that name; LabError lists the names there are."""
    if name not in GRADERS:
        raise LabError(f"There is no grader “{name}”; choose one of {', '.join(GRADERS)}.")
    return GRADERS[name]


def failure(sample: Sample, completion: str) -> str:
    """Which of `FAILURES` a wrong completion is; the first that fits."""
    said = normalise(completion)
    words = said.split()
    if not words:
        return "no answer"
    wanted = [normalise(a) for a in sample.answers]
    if any(f" {w} " in f" {said} " for w in wanted):
        return "too late"
    others = [normalise(o) for o in (*sample.options, *sample.kin) if o not in sample.answers]
    if any(said == o or said.startswith(o + " ") for o in others):
        return "another of its kind"
    if any(_close(said, w) for w in wanted):
        return "misspelt"
    if words[0] in normalise(sample.prompt).split() and words[0] not in _SMALL:
        return "echo"
    return "something else"


_SMALL = frozenset(
    [
        "the",
        "a",
        "an",
        "of",
        "in",
        "is",
        "was",
        "and",
        "to",
        "by",
        "at",
        "it",
        "its",
        "on",
        "for",
        "from",
        "with",
        "as",
    ]
)


def _close(said: str, wanted: str) -> bool:
    """The first words said look like the wanted word: three letters of four in the same order."""
    start = " ".join(said.split()[: len(wanted.split())])
    return SequenceMatcher(None, start, wanted).ratio() >= 0.75


def _listed(answers: Sequence[str]) -> str:
    return " or ".join(f"“{a}”" for a in answers[:3])
