"""Descriptions by any server that speaks OpenAI's chat completions: it proposes, and it simulates.

One request shows the excerpts in which a neuron is most active, every token with a number from 0 to 10, and asks for a
short description. One request a held-out excerpt shows the description and the tokens, and asks for the numbers. The
key, where a server wants one, is read from the environment as LAB_ENDPOINT_KEY and sent nowhere else.
"""

from __future__ import annotations

import json
import os
import re
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from interp.describe.clauses import visible
from interp.describe.reading import Text
from lab.errors import LabError

SHOWN = 5  # excerpts the describer sees
TOP = 10  # the scale of the numbers
PROPOSE = (
    "Below are excerpts of text. After each token, behind a tab, stands how active one neuron of a language model is on "
    "it, from 0 to 10. Say in one short phrase what the neuron is active on: the tokens themselves, what comes before "
    "them, or their meaning. Answer with the phrase alone."
)
SIMULATE = (
    "A neuron of a language model is active on: {description}. Below are the tokens of one text as a JSON list. Say for "
    "each of them how active the neuron is on it, a whole number from 0 (not at all) to 10. Answer with a JSON list of "
    "exactly {n} numbers and nothing else."
)


@dataclass(frozen=True)
class Endpoint:
    """A chat server: `url` up to and without /chat/completions, and the model asked for."""

    url: str
    model: str
    timeout: float = 60.0

    def __post_init__(self) -> None:
        if not re.match(r"https?://[^/]+", self.url):
            raise LabError(f"{self.url!r} is not the address of a server; write it like http://localhost:8000/v1.")
        if not self.model.strip():
            raise LabError("Name the model that the server should use.")

    def ask(self, system: str, user: str) -> str:
        """The server's answer; LabError when it cannot be reached or answers something else."""
        body = {
            "model": self.model, "temperature": 0,
            "messages": [{"role": "system", "content": system}, {"role": "user", "content": user}],
        }  # fmt: skip
        headers = {"Content-Type": "application/json"}
        if key := os.environ.get("LAB_ENDPOINT_KEY"):
            headers["Authorization"] = f"Bearer {key}"
        request = urllib.request.Request(f"{self.url.rstrip('/')}/chat/completions", json.dumps(body).encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=self.timeout) as answer:
                return str(json.load(answer)["choices"][0]["message"]["content"])
        except urllib.error.HTTPError as error:
            raise LabError(f"The server at {self.url} refused with status {error.code}: check its address, model and key.") from None
        except (urllib.error.URLError, OSError) as error:
            raise LabError(f"The server at {self.url} cannot be reached ({getattr(error, 'reason', error)}).") from None
        except (ValueError, KeyError, IndexError, TypeError):
            raise LabError(f"The server at {self.url} did not answer as a chat completion.") from None

    def propose(self, acts: Tensor, text: Text) -> str:
        """A description of one neuron from its activations [window, pos] on `text`."""
        most = float(acts.max())
        if most <= 0:
            return "nothing: it was never active"
        shown = []
        for window in acts.amax(1).topk(min(SHOWN, len(acts))).indices.tolist():
            levels = _levels(acts[window], most)
            shown.append("\n".join(f"{visible(piece)}\t{level}" for piece, level in zip(text.excerpt(window), levels)))
        return " ".join(self.ask(PROPOSE, "\n\n".join(shown)).split())[:400]

    def simulate(self, description: str, text: Text) -> Tensor:
        """How active the description says the neuron is, [window, pos] from 0 to 10."""
        rows = []
        for window in range(len(text.tokens)):
            pieces = text.excerpt(window)
            asked = SIMULATE.format(description=description, n=len(pieces))
            rows.append(_numbers(self.ask(asked, json.dumps(pieces, ensure_ascii=False)), len(pieces)))
        return torch.tensor(rows)


def _levels(acts: Tensor, most: float) -> list[int]:
    return (acts.clamp_min(0) / most * TOP).round().int().tolist()


def _numbers(answer: str, n: int) -> Sequence[float]:
    """`n` numbers from 0 to 10 out of a server's answer; LabError when that is not what it holds."""
    found = re.search(r"\[[^\[\]]*\]", answer, re.DOTALL)
    try:
        numbers = [float(x) for x in json.loads(found.group() if found else "")]
    except (ValueError, TypeError):
        raise LabError("The server did not answer with a list of numbers; a larger model may keep to the form.") from None
    if len(numbers) != n:
        raise LabError(f"The server gave {len(numbers)} numbers for {n} tokens; a larger model may keep to the form.")
    return [min(float(TOP), max(0.0, x)) for x in numbers]
