"""Compiled programs: against the reference compiler's numbers, against the language's meaning, and their circuits."""

import json
import random
from pathlib import Path

import marimo
import pytest
import torch

from interp.circuits.edges import exact
from interp.circuits.graph import Graph
from interp.circuits.score import auroc
from interp.truth import marks, view
from interp.truth.compile import compile_program
from interp.truth.programs import PROGRAMS
from interp.truth.rasp import (
    CATEGORICAL,
    NUMERICAL,
    Aggregate,
    Map,
    Program,
    Rule,
    Select,
    SelectorWidth,
    SequenceMap,
    evaluate,
    indices,
    tokens,
)
from interp.truth.recovery import ORDER, Stopped, answer, distance, edge_scores, missed, roc, studies
from interp.truth.wiring import circuit, wired
from lab.errors import LabError

REFERENCE = json.loads((Path(__file__).parent / "fixtures/tracr.json").read_text())
NAMES = REFERENCE["ours"]  # what we call the same sequences
each = pytest.mark.parametrize("key", PROGRAMS)


@pytest.fixture(scope="module")
def models():
    return {key: compile_program(program) for key, program in PROGRAMS.items()}


def same(answer, meant) -> bool:
    if isinstance(meant, float) and not isinstance(answer, bool | None):
        return abs(answer - meant) < 1e-4
    return answer == meant


# ---- against the reference compiler


@pytest.mark.parametrize("key", REFERENCE["programs"])
def test_every_output_is_the_reference_s(models, key):
    theirs, ours = REFERENCE["programs"][key], models[key]
    cfg = ours.model.cfg
    assert (cfg.n_layers, cfg.n_heads, cfg.d_head) == (theirs["layers"], theirs["heads"], theirs["key_size"])
    labels = [NAMES.get(name, name) + colon + value for name, colon, value in (x.partition(":") for x in theirs["labels"])]
    assert sorted(ours.labels) == sorted(set(labels) - {"tokens:compiler_pad"})
    at = [ours.labels.index(x) if x != "tokens:compiler_pad" else None for x in labels]
    for case in theirs["inputs"]:
        ids = ours.encode(case["tokens"])
        logits, acts = ours.model.run_with_cache(ids)
        for half, entries in enumerate(case["outputs"]):
            wanted = torch.zeros(ids.shape[1], cfg.d_model)
            for position, column, value in entries:
                wanted[position, at[column]] = value
            name = f"blocks.{half // 2}.hook_{'mlp' if half % 2 else 'attn'}_out"
            torch.testing.assert_close(acts[name][0], wanted, atol=2e-6, rtol=1e-5, msg=lambda m: f"{name}: {m}")  # noqa: B023
        assert all(same(a, b) for a, b in zip(ours.decode(logits[0]), case["decoded"], strict=True))


def test_reverse_reverses(models):
    assert models["reverse"].run([1, 2, 3]) == ["BOS", 3, 2, 1]


# ---- against the meaning of the program


@each
def test_the_model_answers_what_the_program_means(models, key):
    program, model = PROGRAMS[key], models[key]
    for xs in list(program.inputs())[:: 1 if key in ("reverse", "balanced") else 5]:
        bos, *answers = model.run(xs)
        assert bos == "BOS"
        assert all(same(a, b) for a, b in zip(answers, program.run(xs), strict=True)), (xs, answers)


def test_programs_mean_what_their_titles_say():
    draw = random.Random()
    for _ in range(100):
        xs = draw.choices((1, 2, 3), k=draw.randint(1, 5))
        assert PROGRAMS["reverse"].run(xs) == xs[::-1]
        assert PROGRAMS["sort"].run(xs) == sorted(xs)
        letters = ["abc"[x - 1] for x in xs]
        assert PROGRAMS["histogram"].run(letters) == [letters.count(x) for x in letters]
        words = draw.choices("wxyz", k=draw.randint(1, 5))
        shares = [words[: i + 1].count("x") / (i + 1) for i in range(len(words))]
        assert PROGRAMS["x_proportion"].run(words) == pytest.approx(shares)
        brackets = draw.choices("()", k=draw.randint(1, 6))
        depths = [brackets[: i + 1].count("(") - brackets[: i + 1].count(")") for i in range(len(brackets))]
        assert PROGRAMS["pair_balance"].run(brackets[:5]) == pytest.approx([d / (i + 1) for i, d in enumerate(depths[:5])])
        assert set(PROGRAMS["balanced"].run(brackets)) == {min(depths) >= 0 and depths[-1] == 0}


def random_program(draw: random.Random) -> Program:
    """Up to five steps that read tokens, indices and each other, with random tables for rules."""
    vocab, length = ("p", "q", "r"), 4
    categorical, binary = [tokens, indices], []

    def table(*outcomes):
        seen: dict = {}
        return Rule("table", lambda *xs: seen.setdefault(xs, draw.choice(outcomes)))

    for step in range(draw.randint(1, 5)):
        kind = draw.choice(["map", "pair", "width", "binary", "share", "back"])
        a, b = draw.choice(categorical), draw.choice(categorical)
        if kind == "map":
            categorical.append(Map(f"s{step}", table(0, 1, 2), a))
        elif kind == "pair":
            categorical.append(SequenceMap(f"s{step}", table("u", "v"), a, b))
        elif kind == "width":
            categorical.append(SelectorWidth(f"s{step}", Select(a, b, table(True, False))))
        elif kind == "binary" or not binary:
            binary.append(Map(f"s{step}", table(0.0, 1.0), a, encoding=NUMERICAL))
        elif kind == "share":
            share = Aggregate(f"s{step}a", Select(a, b, table(True, False)), draw.choice(binary), encoding=NUMERICAL)
            categorical.append(Map(f"s{step}", Rule("x > 1/2", lambda x: x > 0.5), share))
        else:
            categorical.append(Map(f"s{step}", table(3, 4), draw.choice(binary)))
    output = next((x for x in reversed(categorical) if x not in (tokens, indices)), None) or Map("last", table(0, 1), tokens)
    return Program("random", "random", output, vocab, length, vocab)


def test_random_programs_compile_to_what_they_mean():
    seed = random.randrange(10**9)
    draw = random.Random(seed)
    for _ in range(40):
        program = random_program(draw)
        model = compile_program(program, torch.float64)
        for xs in draw.sample(list(program.inputs()), 12):
            answers = model.run(xs)[1:]
            assert all(same(a, b) for a, b in zip(answers, program.run(xs), strict=True)), (seed, program.lines(), xs)


# ---- circuits


def outputs(model, ids):
    """What every sender writes, by node."""
    _, acts = model.run_with_cache(ids, names=lambda n: n.endswith(("hook_result", "hook_mlp_out", "0.hook_resid_pre")))
    found = {"embed": acts["blocks.0.hook_resid_pre"]}
    for layer in range(model.cfg.n_layers):
        results = acts[f"blocks.{layer}.attn.hook_result"]
        found |= {f"a{layer}.h{h}": results[:, :, h] for h in range(model.cfg.n_heads)}
        found[f"m{layer}"] = acts[f"blocks.{layer}.hook_mlp_out"]
    return found


def without(model, ids, sent, receiver):
    """Logits when the receiver does not get what the sender sent."""
    if receiver == "logits":
        name, place = f"blocks.{model.cfg.n_layers - 1}.hook_resid_post", ...
    elif receiver.startswith("m"):
        name, place = f"blocks.{receiver[1:]}.hook_mlp_in", ...
    else:
        layer, rest = receiver[1:].split(".h")
        head, part = rest.split(".")
        name, place = f"blocks.{layer}.hook_{part}_input", (slice(None), slice(None), int(head))

    def cut(x, _):
        x = x.clone()
        x[place] -= sent
        return x

    return model(ids, hooks={name: cut})


def every_edge(cfg):
    senders = ["embed"]
    for layer in range(cfg.n_layers):
        heads = [f"a{layer}.h{h}" for h in range(cfg.n_heads)]
        yield from ((s, f"{head}.{part}") for head in heads for part in "qkv" for s in senders)
        senders += heads
        yield from ((s, f"m{layer}") for s in senders)
        senders.append(f"m{layer}")
    yield from ((s, "logits") for s in senders)


@each
def test_edges_outside_the_circuit_carry_nothing_and_those_inside_do(key):
    """Exact: each edge alone cut, over every input (a sample of the longest where there are many)."""
    compiled = compile_program(PROGRAMS[key], torch.float64)
    true, wires = circuit(compiled), wired(compiled)
    draw = random.Random(0)
    inputs = list(PROGRAMS[key].inputs())
    by_length = [[xs for xs in inputs if len(xs) == n] for n in range(1, PROGRAMS[key].length + 1)]
    effect = dict.fromkeys(every_edge(compiled.model.cfg), 0.0)
    for group in by_length:
        ids = torch.cat([compiled.encode(xs) for xs in draw.sample(group, min(len(group), 60))])
        plain, sent = compiled.model(ids), outputs(compiled.model, ids)
        for edge in effect:
            changed = without(compiled.model, ids, sent[edge[0]], edge[1])
            effect[edge] = max(effect[edge], float((changed - plain)[:, 1:].abs().max()))
    assert set(effect) >= wires
    for edge, found in effect.items():
        if edge not in wires:
            assert found == 0, f"{edge} is not wired and carries {found}"
        elif edge not in true:
            assert found < 1e-3, f"{edge} is called idle and changes the output by {found}"
        else:
            assert found > 0.05, f"{edge} is called needed and changes the output by {found} at most"


def test_the_wiring_is_what_the_weights_say(models):
    """An edge is wired when the sender's matrix and the receiver's meet in some direction."""
    compiled = models["pair_balance"]
    model, cfg = compiled.model, compiled.model.cfg
    embedding = model.W_E.abs().sum(0) + model.model.embed_positions.weight.abs().sum(0)
    written, read = {"embed": embedding}, {"logits": model.W_U.abs().sum(1)}
    for layer in range(cfg.n_layers):
        heads, mlp = model.head_weights(layer), model.mlp_weights(layer)
        for h in range(cfg.n_heads):
            written[f"a{layer}.h{h}"] = heads.W_O[h].abs().sum(0)
            read |= {f"a{layer}.h{h}.{p}": w[h].abs().sum(1) for p, w in zip("qkv", (heads.W_Q, heads.W_K, heads.W_V))}
        written[f"m{layer}"], read[f"m{layer}"] = mlp.W_out.abs().sum(0), mlp.W_in.abs().sum(1)
    assert wired(compiled) == {(s, r) for s, r in every_edge(cfg) if written[s] @ read[r] > 0}


def test_the_circuits_of_the_two_classics(models):
    assert circuit(models["x_proportion"]) == {
        ("embed", "m0"), ("embed", "a1.h0.q"), ("embed", "a1.h0.k"), ("m0", "a1.h0.v"), ("a1.h0", "logits"),
    }  # fmt: skip
    assert circuit(models["reverse"]) == {
        ("embed", "a0.h0.v"), ("a0.h0", "m0"), ("embed", "m0"), ("m0", "m1"), ("embed", "m1"), ("m1", "m2"),
        ("m2", "a3.h0.q"), ("embed", "a3.h0.k"), ("embed", "a3.h0.v"), ("a3.h0", "logits"),
    }  # fmt: skip


# ---- methods against the circuit


@pytest.mark.parametrize("key", ["reverse", "x_proportion"])
def test_exact_patching_finds_the_whole_circuit_when_edges_are_cut(models, key):
    graph = Graph(models[key].model.cfg)
    truth = graph.mask(circuit(models[key]))
    for seed_rows in (6, 11):
        scores = edge_scores(models[key], "exact", "zero", seed_rows)
        assert auroc(scores, truth) == 1
        assert missed(graph, scores, truth) == []


@each
def test_the_circuit_alone_does_everything(models, key):
    """Sufficient, however the rest is replaced, all at once; without its idle wires, which the softmax almost ignores."""
    graph = Graph(models[key].model.cfg)
    truth = graph.mask(circuit(models[key]))
    assert torch.equal(graph.prune(truth), truth)
    for study in studies(models[key], distance, rows=5):
        for kind in ORDER:
            assert abs(study.value(~truth, kind)) < 1e-6
        assert study.value(graph.all(), "zero") > 0.02


def test_exact_patching_is_one_cut_at_a_time():
    """The library's run with an edge replaced against hooks written for this test, on edges drawn anew."""
    compiled = compile_program(PROGRAMS["balanced"], torch.float64)
    study = studies(compiled, distance, rows=6)[-2]
    here, there = outputs(compiled.model, study.batch.clean), outputs(compiled.model, study.batch.corrupted)
    plain = compiled.model(study.batch.clean)
    drawn = torch.randperm(study.graph.n_edges)[:30]
    for kind in ("zero", "counterfactual"):
        scores = exact(study, kind, drawn)
        for i in drawn.tolist():
            sender, receiver = study.graph.edge(i)
            gone = here[sender] - (there[sender] if kind == "counterfactual" else 0)
            changed = without(compiled.model, study.batch.clean, gone, receiver)
            moved = (changed - plain)[:, 1:].square().sum(-1).mean()
            assert float(scores[i]) == pytest.approx(-float(moved), abs=1e-9)


def test_a_counterfactual_of_equal_length_hides_lengths_and_positions(models):
    graph = Graph(models["reverse"].model.cfg)
    truth = graph.mask(circuit(models["reverse"]))
    scores = edge_scores(models["reverse"], "exact", "counterfactual", 8)
    assert set(graph.named(scores > 0)) == {("embed", "a3.h0.v"), ("a3.h0", "logits")}
    assert 0.5 < auroc(scores, truth) < 0.7
    assert set(missed(graph, scores, truth)) == circuit(models["reverse"]) - set(graph.named(scores > 0))


def test_acdc_finds_it_too_and_can_be_stopped(models):
    truth = Graph(models["reverse"].model.cfg).mask(circuit(models["reverse"]))
    assert auroc(edge_scores(models["reverse"], "acdc", "zero", 6), truth) == 1
    asked = iter([True, True, False])
    with pytest.raises(Stopped):
        edge_scores(models["reverse"], "acdc", "zero", 6, lambda: next(asked))


def test_gradients_see_only_edges_that_are_wired(models):
    graph = Graph(models["x_proportion"].model.cfg)
    for method in ("eap", "eap_ig"):
        assert set(graph.named(edge_scores(models["x_proportion"], method, "zero", 6) > 0)) == wired(models["x_proportion"])


def test_the_roc_curve_has_the_area_of_its_ranks():
    generator = torch.Generator().manual_seed(random.randrange(10**6))
    scores = torch.randint(0, 6, (60,), generator=generator).double()
    truth = torch.rand(60, generator=generator) < 0.4
    curve = roc(scores, truth)
    assert (curve.kept[0], curve.kept[-1], curve.found[-1], curve.wrong[-1]) == (0, 60, 1, 1)
    assert torch.trapezoid(torch.tensor(curve.found), torch.tensor(curve.wrong)).item() == pytest.approx(auroc(scores, truth))


def test_the_answer_is_what_the_clean_run_says(models):
    """The metric of gradients is the output itself for a number, and the margin of the right value otherwise."""
    for key, clean in (("x_proportion", None), ("reverse", 1.0)):
        for study in studies(models[key], answer, rows=4):
            values = study.measure(study.clean_logits)
            meant = study.clean_logits[:, 1:, 0].mean(-1) if clean is None else torch.ones(4)
            torch.testing.assert_close(values, meant, atol=1e-4, rtol=0)


# ---- pictures


def test_pictures_show_what_is_there(models):
    compiled = models["reverse"]
    page = marimo.as_html(view.stream(compiled, [1, 2, 3])).text
    assert page.count("<tr") == 2 + compiled.model.cfg.d_model
    assert "length:3, 1 at 1, after m0: 1.000" in page and "reverse:3, 1 at 1, after a3.h0: 1.000" in page
    assert view.strips(compiled, [1, 2, 3]).rows[1]["pieces"] == ["BOS", "3", "2", "1"]
    assert view.strips(models["x_proportion"], ["x", "w", "x"]).rows[1]["pieces"] == ["BOS", "1", "0.5", "0.667"]
    looks = view.attention(compiled, [1, 2, 3])
    assert looks.labels == ["a0.h0", "a3.h0"] and looks.shape == [2, 4, 4]
    drawn = marks.truth_picture(compiled, *view.known("reverse")[1:])
    assert {(e["from"], e["to"] + (f".{e['port']}" if "port" in e else "")) for e in drawn.edges if e["weight"] > 0} == circuit(compiled)


def test_acdc_fills_its_row():
    board = marks.board("histogram")
    assert [row["zero"] for row in board.rows if row["id"] in ("exact", "acdc")] == [1.0, None]
    marks.run_acdc("histogram", board, lambda: True)
    assert next(row for row in board.rows if row["id"] == "acdc")["zero"] == 1.0


# ---- what goes wrong


def program_of(output, vocab=("a", "b"), length=3) -> Program:
    return Program("p", "p", output, vocab, length, vocab)


def test_programs_that_cannot_be_compiled_say_why():
    share = Aggregate("share", Select(tokens, tokens, Rule("true", lambda k, q: True)), indices, encoding=NUMERICAL)
    cases = {
        "must agree": share,
        "other than 0 and 1": Aggregate("mean", share.select, Map("n", Rule("x", float), indices, encoding=NUMERICAL), encoding=NUMERICAL),
        "must be categorical": SelectorWidth("w", Select(Map("n", Rule("x", float), indices, encoding=NUMERICAL), tokens, share.select.rule)),
    }
    for text, output in cases.items():
        with pytest.raises(LabError, match=text):
            compile_program(program_of(output))
    one = Map("same", Rule("x", lambda x: x), tokens)
    with pytest.raises(LabError, match="called 'same'"):
        compile_program(program_of(Map("same", Rule("x", lambda x: x), one)))
    with pytest.raises(LabError, match="BOS"):
        compile_program(program_of(one, vocab=("BOS", "a")))
    with pytest.raises(LabError, match="nothing to compile"):
        compile_program(program_of(tokens))
    squares = SequenceMap("big", Rule("x, y", lambda x, y: (x, y)), tokens, indices)
    with pytest.raises(LabError, match="use shorter inputs"):
        compile_program(program_of(squares, vocab=tuple(range(100)), length=30))
    with pytest.raises(LabError, match="average several"):
        evaluate(Aggregate("a", share.select, tokens, encoding=CATEGORICAL), ["a", "b"])


def test_inputs_that_are_none_say_why():
    program = PROGRAMS["reverse"]
    assert program.parse("1 2 3") == program.parse("123") == program.parse("1,2, 3") == [1, 2, 3]
    for text, why in (("", "empty"), ("1 2 3 1 2 3", "reads 5"), ("1 7", "not a token")):
        with pytest.raises(LabError, match=why):
            program.parse(text)
