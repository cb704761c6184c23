"""A clean and a corrupted prompt: tokenised, aligned, with their two answers."""

from __future__ import annotations

from dataclasses import dataclass, field

from lab.errors import LabError


@dataclass(frozen=True)
class Pair:
    """Two prompts ready to be patched. Token ids, readable pieces, and who stands opposite whom.

    `alignment[p]` is the clean position for corrupted position p, or None where there is no partner.
    """

    clean: str
    corrupted: str
    answer: str
    wrong: str
    clean_ids: list[int]
    corrupted_ids: list[int]
    clean_pieces: list[str]
    corrupted_pieces: list[str]
    answer_id: int
    wrong_id: int
    alignment: list[int | None]
    warnings: list[str] = field(default_factory=list)

    @property
    def equal_length(self) -> bool:
        return len(self.clean_ids) == len(self.corrupted_ids)

    def differs(self, position: int) -> bool:
        """Does the token at this corrupted position differ from its partner (or have none)?"""
        partner = self.alignment[position]
        return partner is None or self.clean_ids[partner] != self.corrupted_ids[position]


def align(clean: list[int], corrupted: list[int]) -> list[int | None]:
    """Clean position for each corrupted position.

    Equal lengths: one to one. Otherwise the shared end and then the shared beginning are matched, and the differing
    middle is matched from its right end, because a subject is read out at its last token.
    """
    n, m = len(clean), len(corrupted)
    if n == m:
        return list(range(m))
    short = min(n, m)
    tail = next((i for i in range(short) if clean[-1 - i] != corrupted[-1 - i]), short)
    head = next((i for i in range(short - tail) if clean[i] != corrupted[i]), short - tail)
    shifted = m - (short - head)  # from here on partners are found by counting from the end
    return [p if p < head else (p + n - m if p >= shifted else None) for p in range(m)]


def answer_token(tokenizer, answer: str, prompt: str, first: bool = False) -> int:
    """The single token of an answer that follows `prompt`; a space is put between words.

    With `first=True` a longer answer is represented by its first token; otherwise it is a LabError that names
    the pieces.
    """
    if not answer.strip():
        raise LabError("An answer is empty; write the word that should follow the prompt.")
    text = answer if answer[0].isspace() or prompt[-1:].isspace() else " " + answer
    ids = tokenizer.encode(text)
    if tokenizer.bos is not None and len(ids) > 1 and ids[0] == tokenizer.bos:
        ids = ids[1:]
    if len(ids) == 1 or first:
        return ids[0]
    pieces = " + ".join(repr(piece) for piece in tokenizer.pieces(ids))
    raise LabError(
        f"The answer {answer.strip()!r} is {len(ids)} tokens for this model ({pieces}); "
        "choose a single-token answer, or use its first token."
    )


def prepare(lm, clean: str, corrupted: str, answer: str, wrong: str, first_token: bool = False) -> Pair:
    """Tokenise and align two prompts for a loaded model. LabError for anything a user should correct."""
    tokenizer, longest = lm.tokenizer, lm.config.context
    ids = {}
    for which, text in (("clean", clean), ("corrupted", corrupted)):
        if not text.strip():
            raise LabError(f"The {which} prompt is empty; write a sentence that ends just before the answer.")
        ids[which] = tokenizer.encode(text)
        if len(ids[which]) > longest:
            raise LabError(
                f"The {which} prompt is {len(ids[which])} tokens; {lm.name} reads at most {longest}. Shorten it."
            )
    if ids["clean"] == ids["corrupted"]:
        raise LabError("The two prompts are the same; change the subject in one of them.")
    answer_id = answer_token(tokenizer, answer, clean, first_token)
    wrong_id = answer_token(tokenizer, wrong, corrupted, first_token)
    if answer_id == wrong_id:
        raise LabError(
            f"Both answers are the token {tokenizer.pieces([answer_id])[0]!r}; choose two that differ."
        )
    warnings = []
    if len(ids["clean"]) != len(ids["corrupted"]):
        warnings.append(
            f"The prompts have {len(ids['clean'])} and {len(ids['corrupted'])} tokens. Differing words are matched "
            "from their last token, and tokens without a partner cannot be patched. Positions after them are shifted, "
            "so part of an effect may come from position alone."
        )
    if clean[-1:].isspace() or corrupted[-1:].isspace():
        warnings.append("A prompt ends in a space; most tokenizers put that space into the next word, so drop it.")
    return Pair(
        clean, corrupted, answer, wrong, ids["clean"], ids["corrupted"],
        tokenizer.pieces(ids["clean"]), tokenizer.pieces(ids["corrupted"]), answer_id, wrong_id,
        align(ids["clean"], ids["corrupted"]), warnings,
    )  # fmt: skip
