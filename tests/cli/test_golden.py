"""Against the independent PyTorch reference: same ids in, same figures out, for every policy.

The figures are in tests/golden/handbook-1024.json; a second set, made from a text that is not ours to distribute, is used
where ../shared is beside the checkout.  Tolerances are those of the project's specification and are not raised:
    --exact       prefill top-10 logits 2e-2, NLL per token 2e-3, decisions equal unless the cosine is within 1e-3 of s,
                  greedy ids equal unless the two best tokens are a near tie
    default mode  mean NLL of each policy within 1 %

Two things cannot be held to these figures, and are held to what they can be:
  - The second set was made with torch.topk, which breaks ties as its partial sort happens to; max-pooling makes ties of up to
    seven positions, so the selections differ from the first on.  Here the lower position wins (docs/POLICIES.md), and
    the handbook's figures were made with that rule (so does the reference with a stable sort agree on the second set, to five
    digits of the perplexity).  Policies that pool are held there to 1 % of the mean NLL only.
  - In default mode a cosine that is within rounding of s may decide otherwise, and 64 tokens do not average that out.
    A policy beyond 1 % must show such a near tie as its first difference from its own exact run.
"""
import hashlib
import json

import pytest
from conftest import ROOT

pytestmark = pytest.mark.slow

LOGIT, NLL, COSINE, MEAN = 2e-2, 2e-3, 1e-3, 0.01
TIE = 2 * LOGIT	# each of two logits may be off by LOGIT
SHARED = ROOT.parent / "shared"
ROUNDING = 5e-3	# of a cosine under 8-bit activations; measured: 1e-3 to 3e-3
LANES = 7	# policies of one run beside vanilla
OUR_NAME = {	# the second set uses the reference's own names
    "streaming": "streamingllm", "refresh:qc=5:s=0.85": "refreshkv:qc=5,s=0.85", "refresh:qc=10:s=0.85": "refreshkv:qc=10,s=0.85",
    "refresh:stride=10": "refreshkv-fixed:stride=10", "refresh:stride=10:mode=refresh": "refreshkv-fixed:stride=10,attend=selected",
    "refresh:never=1": "refreshkv-norefresh",
}


def threshold(spec):
    return float(spec.split("s=")[1].split(",")[0]) if "s=" in spec else 0.85


def batches(specs):
    rest = [s for s in specs if s != "vanilla"]
    return [["vanilla"] + rest[i:i + LANES] for i in range(0, len(rest), LANES)]


class Golden:
    def __init__(self, refreshkv, model, folder, name):
        self.run, self.model, self.folder = refreshkv, model, folder
        if name == "handbook":
            self.want = json.loads((ROOT / "tests/golden/handbook-1024.json").read_text())
            self.prompt = self.want["prompt_ids"]
        else:
            path = SHARED / "golden/smollm2-katrine-1024.json"
            if not path.exists():
                pytest.skip("no ../shared/golden beside the checkout")
            self.want = json.loads(path.read_text())
            text = (SHARED / "data/books" / self.want["text"]).read_bytes()
            ids = list(map(int, refreshkv.ok("tokenize", "-m", model, "--no-special", stdin=text).stdout.split()))
            at = self.want["offset_tok"]
            self.prompt = ids[at:at + self.want["ctx_tok"]]
            assert self.prompt[:16] == self.want["first_ids"]
            assert ids[at + self.want["ctx_tok"]:][:self.want["eval_tok"]] == self.want["eval_ids"]
            self.want["policies"] = {OUR_NAME.get(k, k): v for k, v in self.want["policies"].items()}
        assert hashlib.sha256(model.read_bytes()).hexdigest() == self.want["model_sha256"]
        (folder / "prompt.ids").write_text(json.dumps(self.prompt))
        (folder / "all.ids").write_text(json.dumps(self.prompt + self.want["eval_ids"]))
        self.cache = {}
        self.any_tie = set() if name == "handbook" else {s for s in self.want["policies"] if s.startswith(("snapkv", "refreshkv"))}

    def window(self, *extra):
        """{spec: figures} of all policies, and the top 10 after the prompt."""
        if extra not in self.cache:
            policies = {}
            for batch in batches(self.want["policies"]):
                args = [f"--policy={s}" for s in batch]
                r = self.run.ok("ppl", "-m", self.model, "--ids", self.folder / "all.ids", "--ctx", self.want["ctx_tok"], "--eval",
                                self.want["eval_tok"], "--json", "-", *args, *extra)
                w, = json.loads(r.stdout)["windows"]
                policies.update(w["policies"])
                top = w["prefill_top10"]
            self.cache[extra] = policies, top
        return self.cache[extra]

    def greedy(self):
        """{spec: lane of compare} for every policy, running freely."""
        if "greedy" not in self.cache:
            lanes = {}
            for batch in batches(self.want["policies"]):
                args = [f"--policy={s}" for s in batch]
                r = self.run.ok("compare", "-m", self.model, "--ids", self.folder / "prompt.ids", "-n", 33, "--exact", "--json", *args)
                lanes.update({lane["spec"]: lane for lane in json.loads(r.stdout)["lanes"]})
            self.cache["greedy"] = lanes
        return self.cache["greedy"]


@pytest.fixture(scope="module", params=["handbook", "katrine"])
def golden(refreshkv, model, tmp_path_factory, request):
    return Golden(refreshkv, model, tmp_path_factory.mktemp(request.param), request.param)


def test_prefill_logits(golden):
    _, top = golden.window("--exact")
    ours = dict(map(tuple, top))
    off = {i: (want, ours.get(i)) for i, want in golden.want["prefill_top10"] if i not in ours or abs(ours[i] - want) > LOGIT}
    assert off == {}


def mean(values):
    return sum(values) / len(values)


def test_nll(golden):
    policies, _ = golden.window("--exact")
    off = {}
    for spec, want in golden.want["policies"].items():
        errors = [abs(a - b) for a, b in zip(policies[spec]["nll"], want["nll"], strict=True)]
        ratio = mean(policies[spec]["nll"]) / mean(want["nll"])
        print(f"{spec}: largest NLL difference {max(errors):.2e}, of the mean {100 * (ratio - 1):+.3f} %")
        if abs(ratio - 1) > MEAN if spec in golden.any_tie else max(errors) > NLL:
            off[spec] = f"{sum(e > NLL for e in errors)} tokens, largest {max(errors):.2e}, mean {ratio:.4f}"
    assert off == {}


def other_decisions(a, b):
    """[(step, layer)] at which one of two lists of full layers per step has the layer and the other has not."""
    return [(i, layer) for i, (x, y) in enumerate(zip(a, b, strict=True)) for layer in sorted(set(x) ^ set(y))]


def test_decisions(golden):
    policies, _ = golden.window("--exact")
    wrong = []
    for spec, want in golden.want["policies"].items():
        if "full_layers_per_step" not in want or (spec in golden.any_tie and "stride" not in spec):
            continue	# without the same selections the cosines are others
        cos = {(i, layer): c for i, layer, c in want.get("cos_step_layer", [])}
        for at in other_decisions(policies[spec]["full_layers_per_step"], want["full_layers_per_step"]):
            c = cos.get(at)
            if c is None or abs(c - threshold(spec)) >= COSINE:
                wrong.append((spec, at, c))
            else:
                print(f"{spec}: (step, layer) {at} decided otherwise at cosine {c}, a near tie")
    assert wrong == []


def test_greedy(golden):
    lanes = golden.greedy()
    wrong = []
    for spec, want in golden.want["policies"].items():
        lane = lanes[spec]
        at = next((i for i, (a, b) in enumerate(zip(lane["ids"], want["greedy_ids"])) if a != b), None)
        if at is not None:
            print(f"{spec}: token {at} is {lane['ids'][at]}, the reference has {want['greedy_ids'][at]}; margin {lane['margin'][at]:.4f}")
            if lane["margin"][at] > TIE:
                wrong.append((spec, at, lane["margin"][at]))
        elif len(lane["ids"]) < len(want["greedy_ids"]):
            assert lane["end"] == "end of reply"
    assert wrong == []


def near_tie(spec, default, exact):
    """Is the first decision that differs between the two runs one at a cosine within rounding of s?"""
    other = other_decisions(default["full_layers_per_step"], exact["full_layers_per_step"])
    if not other:
        return False
    cos = {(i, layer): c for i, layer, c in exact["cos"]}
    first = {at: cos[at] for at in other if at[0] == other[0][0]}
    print(f"{spec}: in default mode (step, layer) decided otherwise at cosines {first}")
    return all(abs(c - threshold(spec)) < ROUNDING for c in first.values())


def test_default_mode(golden):
    policies, _ = golden.window()
    exact, _ = golden.window("--exact")
    off = {}
    for spec, want in golden.want["policies"].items():
        ratio = mean(policies[spec]["nll"]) / mean(want["nll"])
        print(f"{spec}: mean NLL {mean(policies[spec]['nll']):.4f}, reference {mean(want['nll']):.4f}, {100 * (ratio - 1):+.2f} %")
        if abs(ratio - 1) > MEAN and not near_tie(spec, policies[spec], exact[spec]):
            off[spec] = ratio
    assert off == {}
