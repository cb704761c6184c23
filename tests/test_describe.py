"""Neurons in words: clauses are found again, scores mean what they say, servers are asked over real sockets."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import torch

from interp.describe import clauses, score, work
from interp.describe.clauses import Clause, Description, Questions, propose, simulate
from interp.describe.endpoint import Endpoint
from interp.describe.reading import Features, Neurons, Text, activations, text_for
from lab import jsonl, models, runs
from lab.errors import LabError
from lab.runs.context import Context

WORDS = ["a", " the", " Paris", " Rome", " Tokyo", "12", ".", " runs", " tall", "ing", "\n", " Eve"]


def text(windows: int = 120, length: int = 20) -> Text:
    return Text(torch.randint(0, len(WORDS), (windows, length)), WORDS.__getitem__)


@pytest.mark.parametrize(
    "planted",
    [
        Clause(2.0, "here", (2, 3, 4)),
        Clause(-1.5, "before", (5,)),
        Clause(1.0, "two before", (1, 8)),
        Clause(3.0, "here", kind="tokens seen earlier in the text"),
        Clause(1.0, "before", kind="digits"),
    ],
)
def test_a_planted_clause_is_found_again(planted):
    seen, held = text(), text()
    acts = simulate(Description((planted,), 0.3), Questions(seen.tokens, seen.piece))
    noisy = acts + 0.2 * torch.randn_like(acts)
    (found,) = propose(noisy[:, None].clone(), Questions(seen.tokens, seen.piece))
    true = simulate(Description((planted,), 0.3), Questions(held.tokens, held.piece))
    said = simulate(found, Questions(held.tokens, held.piece))
    assert score.correlation(said[:, None], true[:, None]).item() > 0.98
    assert abs(found.clauses[0].weight) == pytest.approx(abs(planted.weight), rel=0.15) or planted.kind == "digits"


def test_two_clauses_add_up():
    seen = text(300)
    tests = Questions(seen.tokens, seen.piece)
    truth = Description((Clause(2.0, "here", (2,)), Clause(1.0, "before", (7,))))
    (found,) = propose(simulate(truth, tests)[:, None].clone(), tests)
    assert {(c.place, c.tokens) for c in found.clauses[:2]} == {("here", (2,)), ("before", (7,))}
    assert "“Paris”" in found.words(seen.piece) and "after “runs”" in found.words(seen.piece)


def test_noise_gets_no_description_that_scores():
    seen, held = text(), text()
    acts = torch.randn(seen.size, 30)
    said = score.simulated(propose(acts.clone(), Questions(seen.tokens, seen.piece)), held)
    r = score.correlation(said, torch.randn(held.size, 30)).nan_to_num(0)
    assert r.abs().mean() < 0.05


def test_the_best_set_of_tokens_is_the_best_of_all_subsets():
    """Against every subset, on few tokens."""
    seen = Text(torch.randint(0, 6, (60, 10)), WORDS.__getitem__)
    acts = torch.randn(seen.size, 1, dtype=torch.float32)
    rest = acts - acts.mean(0)
    lookup = clauses._Lookup(seen.tokens.flatten())
    ((gain, _),) = lookup.best(rest, "here")

    def explained(chosen: list[int]) -> float:
        inside = torch.isin(seen.tokens.flatten(), torch.tensor(chosen))
        if not inside.any() or inside.all():
            return 0.0
        means = torch.where(inside, rest[inside].mean(), rest[~inside].mean())
        return float(means.square().sum())

    best = max(explained([i for i in range(6) if bits >> i & 1]) for bits in range(1, 64))
    assert gain == pytest.approx(best, rel=1e-3)


def test_pocket_has_neurons_that_words_tell_and_words_of_others_do_not():
    lm = models.load("pocket")
    seen, held = text_for(lm, 120, 48, False), text_for(lm, 60, 48, True)
    source = Neurons(lm.config.n_layers - 1)
    which = work.chosen(source.count(lm.config), 48)
    scored = score.describe(source, lm, seen, held, which)
    assert scored.score.max() > 0.7
    assert scored.control.nan_to_num(0).mean().abs() < 0.1 < scored.score.nan_to_num(0).mean()
    alone = score.describe(source, lm, seen, held, which[:1])
    assert alone.control.isnan().all(), "no other neuron to compare with"
    assert torch.allclose(alone.score, scored.score[:1], atol=1e-3, equal_nan=True)
    direct = {}
    lm.model(held.tokens[:2], hooks={"blocks.7.mlp.hook_post": lambda a, n: direct.update({n: a})})
    assert torch.equal(activations(source, lm, held, which)[:96], direct["blocks.7.mlp.hook_post"][..., which].float().flatten(0, 1))


def test_silent_units_count_against_the_share():
    scored = score.Scored([], torch.tensor([0.9, float("nan"), 0.2, 0.6]), *[torch.zeros(4)] * 2, torch.zeros(4, dtype=torch.bool))
    assert scored.legible == 0.5


class Server(ThreadingHTTPServer):
    """A chat server that really reads what it is sent: it names the token with the largest number, and simulates by
    looking for that token."""

    def __init__(self, spoil: str = "") -> None:
        self.spoil = spoil
        super().__init__(("127.0.0.1", 0), Handler)

    def __enter__(self):
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert self.path == "/v1/chat/completions" and asked["model"] == "judge"
        system, user = (m["content"] for m in asked["messages"])
        if "exactly" in system:
            wanted = system.split("active on: ")[1].split(". Below")[0]
            numbers = [10 if piece.strip() == wanted else 0 for piece in json.loads(user)]
            answer = self.server.spoil or f"Here: {json.dumps(numbers)}"
        else:
            shown = [line.rsplit("\t", 1) for line in user.split("\n") if "\t" in line]
            answer = max(shown, key=lambda pair: int(pair[1]))[0].strip()
        body = json.dumps({"choices": [{"message": {"content": answer}}]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def test_a_server_describes_and_simulates():
    seen, held = text(), text(8)
    acts = (seen.tokens == 4).float() * torch.rand(seen.tokens.shape).add(0.5)
    with Server() as server:
        endpoint = Endpoint(server.url, "judge")
        said = endpoint.propose(acts, seen)
        assert said == "Tokyo"
        assert torch.equal(endpoint.simulate(said, held), 10.0 * (held.tokens == 4))
        server.shutdown()


@pytest.mark.parametrize("spoil, told", [("[1, 2]", "2 numbers for 20 tokens"), ("I think so", "did not answer with a list"), ("[null]", "list of numbers")])
def test_a_server_that_does_not_keep_to_the_form_is_told_of(spoil, told):
    with Server(spoil) as server:
        with pytest.raises(LabError, match=told):
            Endpoint(server.url, "judge").simulate("x", text(2))
        server.shutdown()


def test_a_server_that_is_not_there_is_told_of():
    with pytest.raises(LabError, match="cannot be reached"):
        Endpoint("http://127.0.0.1:9/v1", "judge", timeout=2).ask("a", "b")
    with pytest.raises(LabError, match="not the address"):
        Endpoint("file:///etc/passwd", "judge")


def test_a_run_describes_layers_and_goes_on_where_it_stopped(tmp_path):
    spec = {"model": "pocket", "layers": [0, 7], "each": 12, "windows": 40, "held": 20, "length": 32}
    run = runs.start("describe", spec)
    deadline = time.monotonic() + 120
    while run.state in runs.LIVE and time.monotonic() < deadline:
        time.sleep(0.2)
    assert run.state == "done", run.error
    rows = work.described(run)
    assert [row["layer"] for row in rows] == [0] * 12 + [7] * 12 and all(row["text"] for row in rows)
    logged = run.metrics()
    assert [row["layer"] for row in logged] == [0, 7] and logged[0]["legible"] >= logged[1]["legible"]
    (tmp_path / work.FILE).write_bytes(b"".join(line + b"\n" for line in (run.path / work.FILE).read_bytes().splitlines()[:12]))
    ctx = Context(tmp_path)
    work.work(spec, ctx)
    ctx.close()
    again = jsonl.read(tmp_path / work.FILE)
    assert [(r["layer"], r["neuron"], r["text"]) for r in again] == [(r["layer"], r["neuron"], r["text"]) for r in rows]
    assert [row["layer"] for row in jsonl.read(tmp_path / "metrics.jsonl")] == [7]  # the first layer was there
    run.delete()


def test_features_are_read_through_their_dictionary():
    from interp.features import Dictionary, Shape

    lm = models.load("pocket")
    shape = Shape("topk", lm.config.d_model, lm.config.d_model, 40, 4, 3, model="pocket")
    source = Features(Dictionary(shape).init_weights(torch.seed() % 2**31), "made")
    held = text_for(lm, 6, 16, True)
    acts = activations(source, lm, held, torch.tensor([0, 39]))
    assert acts.shape == (96, 2) and source.count(lm.config) == 40
    assert (activations(source, lm, held) > 0).sum(1).max() <= 4
