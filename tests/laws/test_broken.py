"""Each law is seen to fail on a mixer that was broken on purpose, and to pass on an outsider's sound one."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import nn
from torch.autograd.function import once_differentiable

import regard
from regard import Mixer, No, Observation
from regard.core import OPEN, Compaction, permute
from regard.functional.rows import masked_softmax, plain_alone, scores
from regard.mixers.compressed import Compressed
from regard.mixers.flash import Flash
from regard.mixers.gau import GAU
from regard.mixers.linear import Linear
from regard.mixers.local import Local
from regard.mixers.softmax import Softmax
from regard.mixers.transformer_xl import TransformerXL
from regard.testing import LAWS, LawError, check_mixer, judge_mixer

CHUNK, PIECE, CAPACITY = 128, 600, 256
LEFT_OUT = No("left out of this example")


def broken(base, **attributes):
    return type("Broken", (base,), {"__module__": __name__, **attributes})


def around(base, change, method="mix"):
    """The base, whose method gives `change(mixer, call, *arguments)`; `call` is the base's own method."""
    own = getattr(base, method)

    def changed(self, *arguments, **named):
        return change(self, partial(own, self), *arguments, **named)

    return broken(base, **{method: changed})


def output(base, change):
    """`change(mixer, x, y, mask)` is what the base's y for x becomes."""
    return around(base, lambda m, mix, x, c, mask: change(m, x, mix(x, c, mask), mask))


def tokens(base, change):
    """The base, which sees `change(mixer, x)` in the place of x."""
    return around(base, lambda m, mix, x, c, mask: mix(change(m, x), c, mask))


def masks(base, **fields):
    """The base, which sees a mask with other fields."""
    return around(base, lambda m, mix, x, c, mask: mix(x, c, replace(mask, **fields)))


def declares(base, **capabilities):
    return broken(base, capabilities=base.capabilities.but(**capabilities))


def holds(base, **parts):
    """The base with more attributes, of which each is `part(dim)`."""

    def __init__(self, dim, *, num_heads):
        base.__init__(self, dim, num_heads=num_heads)
        for name, part in parts.items():
            setattr(self, name, part(dim))

    return broken(base, __init__=__init__)


def extends(base, change):
    """`change(mixer, state, valid, y, after)` is what the base's y and state after it become."""
    return around(base, lambda m, own, x, s, v, d: change(m, s, v, *own(x, s, v, d)), "_extend")


def observes(base, change):
    """`change(mixer, seen, x, context, mask)` is what the base's observation becomes."""
    return around(base, lambda m, see, *request: change(m, see(*request), *request), "_observe")


def place(x):
    """[T 1]"""
    return torch.arange(x.shape[1], device=x.device)[:, None]


def from_token(start, x):
    return place(x) >= start


def first_of(x):
    return x.detach()[:, :1, :1]


def hooked(y, when, change):
    if y.requires_grad and y.dtype == torch.float32 and when:
        y.register_hook(change)
    return y


def is_plain(mixer):
    return getattr(mixer.impl, "name", mixer.impl) == "plain"


class Outsider(Mixer):
    """Running mean of values: sound, written outside the library, with no oracle."""

    name = "running_mean"
    capabilities = Linear.capabilities.but(
        bidirectional=No("a running mean has a direction"), cross=No("it follows one sequence"),
        streaming=LEFT_OUT, attention_map=LEFT_OUT, time="T D", memory="T D",
    )  # fmt: skip

    def __init__(self, dim):
        super().__init__(dim)
        self.value = nn.Linear(dim, dim)

    def mix(self, x, context, mask):
        value = self.value(x)
        if mask.valid is not None:
            value = value * mask.valid[..., None]
        return value.cumsum(1) / torch.arange(1, x.shape[1] + 1).to(x)[:, None]


def running_mean(params, options, x, *, causal, **request):
    value = x @ params["value.weight"].T + params["value.bias"]
    return torch.stack([value[:, : t + 1].mean(1) for t in range(x.shape[1])], 1), None


def lent(m, state, valid, y, after):
    """States share their storage until one of them writes."""
    first, last = state.length, after.length
    is_written = ((first == 0) | (first // m.factor < last // m.factor)).any()
    return y, after if is_written else replace(after, k=state.k, v=state.v)


def grown(m, state, valid, y, after):
    """Where lengths cannot be read, the store gets one column more than it needs."""
    k, v = (torch.nn.functional.pad(z, (0, 0, 0, 1)) for z in (after.k, after.v))
    return y, replace(after, k=k, v=v) if plain_alone() else after


class Narrow(Local):
    def __init__(self, dim, *, num_heads):
        super().__init__(dim, num_heads=num_heads, window_size=4)


def zero(dim):
    return nn.Buffer(torch.zeros(()))


def counted(m, x):
    m.seen = m.seen + len(x)
    return x


class NotANumber(Softmax):
    """The usual softmax over a row of minus infinities."""

    def mix(self, x, context, mask):
        q, k, v = self.heads.split(x, context)
        allowed = mask.dense(x.shape[1], k.shape[2], device=x.device)
        scores = (q @ k.transpose(-1, -2)).masked_fill(~allowed, -torch.inf)
        return self.heads.merge(scores.softmax(-1) @ v)


class KeepsWhatItSaw(Softmax):
    def mix(self, x, context, mask):
        self.seen = self.heads.values(x)
        return super().mix(x, context, mask)

    def _observe_heads(self, x, context, mask):
        self.mix(x, context, mask)
        return Observation(v=self.seen)


class StartsElsewhere(Softmax):
    """torch's walk resets a layer after its owner: what the owner drew for it is lost."""

    beside_heads = "its first layer"

    def __init__(self, dim, *, num_heads):
        super().__init__(dim, num_heads=num_heads)
        self.first = nn.Linear(dim, dim, bias=False)
        self.reset_parameters()

    def reset_parameters(self):
        nn.init.xavier_uniform_(self.first.weight)

    def mix(self, x, context, mask):
        return super().mix(self.first(x), context, mask)


class KeepsEveryTile(Softmax):
    """A bare loop: every tile of the scores is small, and the backward needs them all."""

    def mix(self, x, context, mask):
        q, k, v = self.heads.split(x, context)
        tiles, T = [], x.shape[1]
        for n, part in enumerate(q.split(64, dim=2)):
            rows = slice(64 * n, 64 * n + part.shape[2])
            allowed = mask.dense(T, k.shape[2], rows=rows, device=x.device)
            tiles.append(masked_softmax(scores(part, k), allowed) @ v)
        return self.heads.merge(torch.cat(tiles, dim=2))


class NoGradientBetweenPieces(Linear):
    """Keys of earlier pieces are constants to later queries."""

    def mix(self, x, context, mask):
        if not mask.causal or x.shape[1] <= PIECE:
            return super().mix(x, context, mask)
        y, early = super().mix(x, context, mask), x[:, :PIECE]
        cut = super().mix(torch.cat([early.detach(), x[:, PIECE:]], 1), context, mask)
        return torch.cat([y[:, :PIECE], cut[:, PIECE:]], 1)


def anew(m, x):
    return m._initial_state(len(x), None, None, None)


def wraps(m, extend, x, state, *how):
    return extend(x, anew(m, x) if int(state.length.max()) >= CAPACITY else state, *how)


def writes(m, mix, x, context, mask):
    """The caller's own tensor, where the door passes it on."""
    if mask.pairwise is not None:
        mask.pairwise[..., 0, 0] ^= True
    return mix(x, context, mask)


def paged(m, state, valid, y, after):
    """A page for every 64 tokens."""
    room = -after.k.shape[2] % 64
    k, v = (torch.nn.functional.pad(z, (0, 0, 0, room)) for z in (after.k, after.v))
    return y, replace(after, k=k, v=v)


class Maximum(Outsider):
    """Of earlier values: at most D tokens are felt."""

    def mix(self, x, context, mask):
        value = self.value(x)
        if mask.valid is not None:
            value = value.masked_fill(~mask.valid[..., None], -100)
        return value.cummax(1).values


class Squared(torch.autograd.Function):
    """x^2, with a backward by hand that autograd takes for a constant."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.square()

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        return 2 * dy * ctx.saved_tensors[0]


class Constant(Squared):
    """x^2, of which a program that keeps the forward alone has no gradient."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.detach().square()


class BeginsDocumentsWithWhatItKept(Linear):
    """A new state takes over the sums of the last one."""

    kept = 0.0

    def _initial_state(self, *sizes):
        new = super()._initial_state(*sizes)
        return replace(new, S=new.S + self.kept)

    def _extend(self, x, state, valid, donate):
        y, state = super()._extend(x, state, valid, donate)
        self.kept = 1e-6
        return y, state


ABSENT_ROWS = tokens(holds(Softmax, held=zero, seen=lambda dim: 0), counted)
DOES_NOTHING = around(Outsider, lambda m, mix, x, context, mask: m.value(x))
# fmt: off
BROKEN = {
    "another plain form": ("fast", output(Softmax, lambda m, x, y, _: y * (1 + 1e-6 * is_plain(m)))),
    "another gradient in its plain form": ("fast", tokens(Softmax, lambda m, x: torch.where(x > 1.5, x.detach(), x) if is_plain(m) else x)),
    "detaches a factor": ("derivative", output(Softmax, lambda m, x, y, _: y * (1 + 1e-6 * x.detach().amax()))),
    "one derivative": ("derivative second_derivative transforms", tokens(Softmax, lambda m, x: x + Squared.apply(x))),
    "one derivative behind a border": ("second_derivative",
        tokens(Softmax, lambda m, x: x + torch.where(from_token(PIECE, x), Squared.apply(x), x.square())), "701 tokens"),
    "looks at values": ("transforms compiled", tokens(Softmax, lambda m, x: x if x.sum().item() > 0 else x + 0)),
    "another function under torch.func": ("transforms",
        tokens(Softmax, lambda m, x: x * (1 + 1e-6 * torch._C._are_functorch_transforms_active())), "vmap"),
    "wrong scale": ("reference", tokens(Softmax, lambda m, x: 1.001 * x)),
    "not its limit": ("limit", broken(Softmax, limits={"softmax": ({"scale": 0.7}, {})})),
    "sees the future": ("causality", output(Softmax, lambda m, x, y, _: y + 1e-8 * x.mean(1, keepdim=True))),
    "knows the length": ("causality", output(Softmax, lambda m, x, y, _: y * (1 + 1e-6 * x.shape[1]))),
    "looks ahead in training": ("causality", output(Softmax, lambda m, x, y, _: y + 1e-8 * m.training * x.mean(1, keepdim=True)), "in training"),
    "leaks behind its first chunk": ("causality long",
        output(Flash, lambda m, x, y, mask: (y + 1e-3 * mask.causal * from_token(m.chunk_size, x) * x.mean(1, keepdim=True)))),
    "counts padding": ("padding", output(declares(Outsider, causal=LEFT_OUT, bidirectional=True),
        lambda m, x, y, _: m.value(x).mean(1, keepdim=True).expand_as(x))),
    "does nothing": ("sensitivity", DOES_NOTHING),
    "claims no delay": ("sensitivity", broken(Compressed, delay=property(lambda m: 0, lambda m, delay: None))),
    # In the last of the three draws of the law, whose first number is the only one from 0 to 1.
    "deaf in one draw": ("sensitivity", tokens(Softmax, lambda m, x: x.masked_fill((first_of(x) > 0) & (first_of(x) < 1), 0)), "gives weight"),
    "forgets global tokens": ("sensitivity", masks(Narrow, global_tokens=None), "global"),
    "ignores pairs": ("isolation", masks(Softmax, pairwise=None)),
    "ignores pairs of all heads": ("isolation", around(Softmax, lambda m, mix, x, c, mask:
            mix(x, c, replace(mask, pairwise=None) if mask.pairwise is not None and mask.pairwise.shape[1] == 1 else mask))),
    "decays at absent tokens": ("streaming padding long",
        extends(Linear, lambda m, state, valid, y, after: (
            y, after if valid is None else replace(after, S=after.S * 0.9 ** (~valid).sum(1)[:, None, None, None])))),
    "ignores documents": ("packed", around(Linear,
        lambda m, forward, x, context=None, mask=OPEN: forward(x, context=context, mask=replace(mask, documents=None)), "forward")),
    "begins documents with what it kept": ("packed", BeginsDocumentsWithWhatItKept),
    "forgets the past": ("streaming", around(Softmax, lambda m, extend, x, state, valid, donate:
            (extend(x, anew(m, x), valid, donate)[0], extend(x, state, valid, donate)[1]), "_extend")),
    "remembers another's past": ("streaming", around(TransformerXL,
            lambda m, extend, x, state, *how: extend(x, replace(state, memory=state.memory.roll(1, 0)), *how), "_extend")),
    "always donates": ("streaming", around(Softmax, lambda m, extend, x, state, valid, donate: extend(x, state, valid, True), "_extend"), "without donate"),
    "claims to grow": ("streaming", declares(Linear, state="T D"), "declared to grow"),
    "claims not to grow, in pages": ("streaming", extends(declares(Softmax, state="D"), paged), "declared constant"),
    "lends its store": ("streaming", extends(Compressed, lent), "two branches"),
    "misplaces unread tokens": ("streaming", around(Softmax, lambda m, extend, x, *rest: extend(x.flip(-1) if plain_alone() else x, *rest), "_extend"), "no value read: differs"),
    "grows unread": ("streaming", extends(Softmax, grown), "changed shapes"),
    "map without mask": ("map",
        observes(Softmax, lambda m, seen, x, context, mask: Softmax._observe(m, x, context, replace(mask, causal=False)))),
    "heads before their norm": ("observed",
        observes(Softmax, lambda m, seen, x, context, mask: seen._replace(heads=2 * m._mixed(x, context, mask))), "heads without the weights"),
    "heads before their gate": ("observed", around(Softmax, lambda m, mixed, *request: mixed(*request) / 2, "_mixed"), "what forward projects"),
    "values without heads": ("observed", around(Softmax, lambda m, see, *request: see(*request)._replace(heads=None), "_observe_heads"), "values alone"),
    "answers in double": ("types", output(Softmax, lambda m, x, y, _: y.double()), "output is torch.float64, the input torch.float16"),
    # A half-precision norm of an absent token, which is zero.
    "divides by a norm": ("types",
        output(Softmax, lambda m, x, y, _: (y + 0 * (x * x.norm(dim=-1, keepdim=True).clamp_min(1e-6).reciprocal()))), "not finite in torch.float16"),
    # Its square passes 65,504 from numbers of 256 on.
    "squares in float16": ("finite",
        output(Softmax, lambda m, x, y, _: y + 0 * y.square()), "plain in torch.float16 at scale 100: output is not finite"),
    "exponent of a large number": ("finite", tokens(Softmax, lambda m, x: x * (1 + 0 * x.exp())), "scale 10: output"),
    "claims more than is finite": ("finite", declares(GAU, finite_to=10.0), "at scale 10: output"),
    "mixes the batch in training": ("batch", tokens(Softmax, lambda m, x: nn.functional.dropout(x, 0.1) + x.mean(0, keepdim=True) if m.training else x)),
    "mixes the batch": ("batch", tokens(Softmax, lambda m, x: x - 1e-6 * x.mean(0, keepdim=True))),
    "not a number": ("empty", NotANumber),
    "counts absent rows": ("empty_batch", around(ABSENT_ROWS, lambda m, step: m.held.add_(m.seen), "_after_step")),
    "needs two tokens": ("lengths", output(Outsider, lambda m, x, y, _: y / (0 if x.shape[1] == 1 else 1))),
    "rolls dice": ("randomness", output(Softmax, lambda m, x, y, _: y + 1e-6 * torch.randn_like(x))),
    "counts": ("randomness", tokens(holds(Softmax, seen=zero), counted)),
    "halves in training": ("randomness", output(Softmax, lambda m, x, y, _: y * (1 - m.training / 2)), "training, where chance"),
    "writes into its mask": ("randomness", around(Softmax, writes), "changes what it is given"),
    "keeps what it saw": ("threads", KeepsWhatItSaw),
    "keeps a tensor": ("transfer", output(holds(Softmax, shift=lambda dim: torch.randn(dim).double()), lambda m, x, y, _: y + m.shift), "another function"),
    "gates beside its heads": ("transfer",
        output(holds(Softmax, gate=lambda dim: nn.Linear(dim, dim)), lambda m, x, y, _: m.gate(x) * y), "`beside_heads`"),
    "keeps what memory held": ("transfer",
        output(holds(Softmax, held=zero), lambda m, x, y, _: y + m.held), "does not restore held, which keeps what memory held"),
    "one type only": ("autocast", output(Softmax, lambda m, x, y, _: torch.zeros_like(x).index_copy_(1, torch.arange(x.shape[1], device=x.device), y))),
    "exports no gradient": ("exported", tokens(Softmax, lambda m, x: x + Constant.apply(x))),
    "loops over time": ("free_length", output(Outsider, lambda m, x, y, _: torch.cat([*y.split(1, dim=1)], dim=1)), "not exported for any batch and length"),
    "claims linear": ("complexity", declares(Softmax, time="T H K")),
    "claims no memory": ("complexity", declares(Linear, memory="H K V")),
    "claims a sum without its fastest term": ("complexity", declares(Linear, time="T H M V + T^2 H K")),
    "keeps every tile": ("training_memory", KeepsEveryTile),
    "forgets padding in training": ("randomness", around(Softmax, lambda m, mix, x, context, mask: mix(
        x, context, replace(mask, valid=None) if m.training else mask), "mix"), "interior padding: training"),
    "takes the first head's pairs for all": ("isolation", around(Softmax, lambda m, mix, x, context, mask: mix(
        x, context, mask if mask.pairwise is None else replace(mask, pairwise=mask.pairwise[:, :1])), "mix"), "head 1 change nothing"),
    "refuses silently": ("refusals", around(Linear, lambda m, require, what: None, "require")),
    "forgets pairs in float32": ("low_precision", around(Softmax, lambda m, mix, x, c, mask: mix(
        x, c, mask if x.dtype == torch.float64 else replace(mask, pairwise=None))), "pairwise in torch.float32"),
    "rounds to bfloat16": ("low_precision",
        output(Softmax, lambda m, x, y, _: y.bfloat16().float() if y.dtype == torch.float32 else y), "float32: output"),
    "rounds gradients to bfloat16": ("low_precision",
        output(Softmax, lambda m, x, y, _: hooked(y, True, lambda dy: dy.bfloat16().float())), "float32: gradient"),
    "loses its gradients in one of the three draws": ("low_precision",
        output(Softmax, lambda m, x, y, _: hooked(y, first_of(x)[0] < 0, lambda dy: dy * torch.nan)), "float32: gradient of x: error inf"),
    "silent after 64": ("long", output(Softmax, lambda m, x, y, _: y.masked_fill(from_token(64, x), 0)), "outputs of tokens 64 to 127 are zero"),
    "deaf from 64 to 191": ("long", tokens(Outsider, lambda m, x: x.masked_fill(from_token(64, x) & (place(x) < 192), 0)), "no output feels tokens 64 to 127"),
    # The first token of every chunk but the first is summed twice.
    "wrong sum at a border": ("long", output(Linear, lambda m, x, y, mask: torch.where(
        mask.causal & from_token(CHUNK, x) & (place(x) % CHUNK == 0), y + 1e-3 * x, y)), "extend"),
    # Its own chunks, of which `impl` knows nothing.
    "wrong sum without blocks": ("long", output(Outsider, lambda m, x, y, _: y + 1e-3 * from_token(64, x)), "67 tokens"),
    "no gradient between pieces": ("long", NoGradientBetweenPieces, "along a direction"),
    "wraps at its capacity": ("long", around(Softmax, wraps, "_extend"), "extend"),
    "forgets what came before a long piece": ("long", extends(Softmax, lambda m, state, valid, y, after: (
        y * (1 + 1e-3 * (y.shape[1] > PIECE)), after)), "extend"),
}
# fmt: on
"""Name -> laws, a class that breaks them, and what the error says, where a law has several parts."""
CASES = [(law, name) for name, (laws, *_) in BROKEN.items() for law in laws.split()]


def make(cls):
    return cls(24) if issubclass(cls, Outsider | Flash | GAU) else cls(24, num_heads=3)


@pytest.mark.parametrize(("law", "name"), CASES)
def test_a_broken_mixer_is_caught(law, name, monkeypatch):
    _, cls, *words = BROKEN[name]
    monkeypatch.setattr("regard.testing.laws.cost.RANGES", ((1024, 4096),))  # longer is dear
    monkeypatch.setitem(globals(), "Broken", cls)  # where pickle looks for it
    oracle = regard.reference.softmax if issubclass(cls, Softmax) else None
    if name == "wrong sum without blocks":
        oracle = running_mean
    with pytest.raises(LawError, match=f"^{law}: .*{''.join(words)}"):
        check_mixer(lambda: make(cls), law, oracle=oracle)


def test_poison_is_caught_when_the_door_does_not_clear(monkeypatch):
    monkeypatch.setattr(Compaction, "of", lambda order, x: permute(x, order.source))
    with pytest.raises(LawError, match=r"^poison: "):
        check_mixer(lambda: make(Outsider), "poison")


def test_every_law_was_seen_to_fail():
    assert {law for law, _ in CASES} | {"poison"} == set(LAWS)


def test_an_outsiders_sound_mixer_passes_every_law():
    assert check_mixer(lambda: make(Outsider)) == list(LAWS)
    assert check_mixer(lambda: make(Maximum), "long") == ["long"]
    x, causal = torch.zeros(1, 2, 24), regard.Mask(causal=True)
    assert make(Outsider).observe(x, mask=causal) == Observation()  # it has nothing to show


def test_what_a_law_cannot_judge_is_said_and_a_broken_law_does_not_end_a_run_of_verdicts():
    without_map = declares(Softmax, attention_map=LEFT_OUT)
    checked = check_mixer(lambda: make(without_map), ["sensitivity", "batch"])
    assert checked == ["sensitivity", "batch"] and set(checked.of("passed")) == {"batch"}
    assert "pairwise" in checked.of("cannot judge")["sensitivity"]
    found = check_mixer(lambda: make(Outsider), ["reference", "streaming", "limit"])
    assert "no oracle" in found.of("cannot judge")["reference"]
    assert found.of("does not apply")["streaming"].endswith("left out of this example")
    assert check_mixer(lambda: make(Narrow), "limit").of("does not apply")  # of its parent
    moved = check_mixer(lambda: make(StartsElsewhere), "transfer").of("cannot judge")["transfer"]
    assert "does not restore first.weight, whose standard deviation is" in moved
    verdicts = list(judge_mixer(lambda: make(DOES_NOTHING), ["sensitivity", "batch"]))
    assert [verdict.outcome for verdict in verdicts] == ["failed", "passed"]
    assert "no output but its own" in verdicts[0].sentence


class WrongLimit(Softmax):
    limits = {"softmax": ({"num_kv_heads": 2}, {})}


def test_laws_bear_few_tokens_and_other_heads_and_no_wrong_limit():
    few = partial(regard.build, "gmlp", dim=24, num_heads=3)
    assert check_mixer(partial(few, max_len=14), "streaming") == ["streaming"]
    with pytest.raises(regard.OptionError, match="rows of 13 tokens, and max_len is 12"):
        check_mixer(partial(few, max_len=12), "streaming")
    heads = check_mixer(partial(regard.build, "head_mix", dim=8, num_heads=4), "limit")
    assert "3 patterns for 4 heads" in heads.of("does not apply")["limit"]
    with pytest.raises(LawError, match=r"^limit: .*num_kv_heads"):
        check_mixer(lambda: make(WrongLimit), "limit")


def test_laws_that_do_not_exist_are_refused():
    with pytest.raises(regard.UnknownNameError, match="Did you mean 'causality'"):
        check_mixer(lambda: make(Outsider), "causalty")
    with pytest.raises(regard.OptionError, match="or name some, got none"):
        check_mixer(lambda: make(Outsider), [])
