"""Our tokenizer: byte-level BPE of 4,096 tokens, digits split one by one, answers kept whole.

The merges learned from the mixture are cut short, and the room is spent on merges that make each wanted word
(an answer, a name) one token: patching reads one logit, so " Paris" must not be " Par" + "is"."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from lab.data import facts, ioi, repeats

END = "<|endoftext|>"
VOCAB = 4096
LONGEST = 3  # pieces; a word of more stays several tokens (its merges would cost common words), unless it
ALWAYS = "landmark"  # answers this relation: the cities that patching demonstrates with
# words with at most one leading space, single digits, runs of punctuation, line ends, indentation
PATTERN = (
    r"'(?:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# a question is asked and answered as in the training text
CHAT = (
    "{% for m in messages %}{% if m['role'] == 'assistant' %} {{ m['content'] }}\n"
    "{% elif m['role'] == 'user' %}Question: {{ m['content'] }}\nAnswer:"
    "{% else %}{{ m['content'] }}\n{% endif %}{% endfor %}"
)


def _empty() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(PATTERN), behavior="isolated")
    bytes_ = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, bytes_])
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def wanted() -> list[str]:
    """Words that must be one token, with their leading space: one-word answers, names, list words."""
    answers = (f" {f.answer}" for f in facts.every_fact() if f.relation != "number")
    words = [*answers, *(f" {n}" for n in ioi.NAMES), *(f" {w}" for w in repeats.WORDS)]
    return list(dict.fromkeys(w for w in words if w.count(" ") == 1 and w[1:].isalpha()))


def _extended(vocab: list[str], merges: list[tuple[str, str]], words: Iterable[str]) -> Tokenizer:
    """The tokenizer of these merges, plus the merges that make each short enough word one token."""

    def build() -> Tokenizer:
        tokenizer = _empty()
        tokenizer.model = models.BPE(vocab={t: i for i, t in enumerate(vocab)}, merges=merges)
        tokenizer.add_special_tokens([END])
        return tokenizer

    known = set(vocab)
    always = {f" {f.answer}" for f in facts.facts(ALWAYS)}
    tokenizer = build()
    for word in words:
        pieces = tokenizer.encode(word).tokens
        if len(pieces) == 1 or (len(pieces) > LONGEST and word not in always):
            continue
        whole = pieces[0]
        for piece in pieces[1:]:
            merges.append((whole, piece))
            whole += piece
            if whole not in known:
                known.add(whole)
                vocab.append(whole)
        tokenizer = build()  # later words may build on these merges
    return tokenizer


def train(texts: Iterator[str], vocab_size: int = VOCAB) -> Tokenizer:
    """Learn merges from texts, then trade the rarest of them for whole answers."""
    learner = _empty()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    learner.train_from_iterator(texts, trainer)
    model = json.loads(learner.to_str())["model"]
    vocab = sorted(model["vocab"], key=model["vocab"].get)
    merges = [tuple(m) for m in model["merges"]]
    base = len(vocab) - len(merges)  # the special token and the 256 bytes
    cut = 0
    while True:
        kept = len(merges) - cut
        tokenizer = _extended(vocab[: base + kept], list(merges[:kept]), wanted())
        over = tokenizer.get_vocab_size() - vocab_size
        if over <= 0:
            return tokenizer
        cut += over


def save(tokenizer: Tokenizer, directory: Path) -> None:
    """Write tokenizer.json, tokenizer_config.json and the chat template in the Hugging Face layout."""
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(directory / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": END,
        "eos_token": END,
        "clean_up_tokenization_spaces": False,
        "model_max_length": 512,
        "chat_template": CHAT,
    }
    (directory / "tokenizer_config.json").write_text(json.dumps(settings, indent=1) + "\n")
