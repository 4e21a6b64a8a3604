"""Each law is seen to fail on a mixer that was broken on purpose, and to pass on an outsider's sound one."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.autograd.function import once_differentiable

import regard
from regard import Mixer, No, Observation
from regard.core import OPEN
from regard.core.request import Compaction, permute
from regard.functional.rows import masked_softmax, plain_alone, scores
from regard.mixers.compressed import Compressed
from regard.mixers.flash import Flash
from regard.mixers.linear import Linear
from regard.mixers.local import Local
from regard.mixers.softmax import Softmax
from regard.mixers.transformer_xl import TransformerXL
from regard.testing import LAWS, LawError, check_mixer, judge_mixer

CHUNK, PIECE, CAPACITY = 128, 600, 256


class Outsider(Mixer):
    """Running mean of values: sound, written outside the library, with no oracle."""

    name = "running_mean"
    family = "test"
    paper = "none"
    capabilities = replace(
        Linear.capabilities,
        bidirectional=No("a running mean has a direction"),
        cross=No("it follows one sequence"),
        streaming=No("left out of this example"),
        attention_map=No("left out of this example"),
        time="T D",
        memory="T D",
    )

    def __init__(self, dim):
        super().__init__(dim)
        self.value = nn.Linear(dim, dim)

    def mix(self, x, context, mask):
        value = self.value(x)
        if mask.valid is not None:
            value = value * mask.valid[..., None]
        return value.cumsum(1) / torch.arange(1, x.shape[1] + 1, device=x.device)[:, None].to(
            x.dtype
        )


def running_mean(params, options, x, *, causal, **request):
    value = x @ params["value.weight"].T + params["value.bias"]
    return torch.stack([value[:, : t + 1].mean(1) for t in range(x.shape[1])], 1), None


class WrongScale(Softmax):
    def mix(self, x, context, mask):
        return super().mix(1.001 * x, context, mask)


class NotItsLimit(Softmax):
    limits = {"softmax": ({"scale": 0.7}, {})}


class SeesTheFuture(Softmax):
    def mix(self, x, context, mask):
        return super().mix(x, context, mask) + 1e-8 * x.mean(1, keepdim=True)


class KnowsTheLength(Softmax):
    def mix(self, x, context, mask):
        return super().mix(x, context, mask) * (1 + 1e-6 * x.shape[1])


class GatesBesideItsHeads(Softmax):
    """Does not say so in `beside_heads`."""

    def __init__(self, dim, **options):
        super().__init__(dim, **options)
        self.gate = nn.Linear(dim, dim)

    def mix(self, x, context, mask):
        return self.gate(x) * super().mix(x, context, mask)


class CountsPadding(Outsider):
    capabilities = replace(Outsider.capabilities, causal=No("it means all"), bidirectional=True)

    def mix(self, x, context, mask):
        return self.value(x).mean(1, keepdim=True).expand_as(x)


class DoesNothing(Outsider):
    def mix(self, x, context, mask):
        return self.value(x)


class DeafInOneDraw(Softmax):
    """In the last of the three draws of the law, whose first number is the only one from 0 to 1."""

    def mix(self, x, context, mask):
        y = super().mix(x, context, mask)
        first = x.detach()[:, :1, :1]
        return torch.where((first > 0) & (first < 1), x, y)


class IgnoresPairs(Softmax):
    def mix(self, x, context, mask):
        return super().mix(x, context, replace(mask, pairwise=None))


class ForgetsThePast(Softmax):
    def _extend(self, x, state, valid, donate):
        _, after = super()._extend(x, state, valid, donate)
        fresh = self._initial_state(x.shape[0], None, None, None)
        return super()._extend(x, fresh, valid, donate)[0], after


class RemembersAnothersPast(TransformerXL):
    def _extend(self, x, state, valid, donate):
        return super()._extend(x, replace(state, memory=state.memory.roll(1, 0)), valid, donate)


class DecaysAtAbsentTokens(Linear):
    """In a stream; `forward` never has one between others."""

    def _extend(self, x, state, valid, donate):
        y, after = super()._extend(x, state, valid, donate)
        absent = 0 if valid is None else (~valid).sum(1)[:, None, None, None]
        return y, replace(after, S=after.S * 0.9**absent)


class LeaksBehindItsFirstChunk(Flash):
    def mix(self, x, context, mask):
        y = super().mix(x, context, mask)
        late = torch.arange(x.shape[1], device=x.device)[:, None] >= self.chunk_size
        return y + 1e-3 * late.to(x) * x.mean(1, keepdim=True) if mask.causal else y


class ChangesItsState(Linear):
    def _extend(self, x, state, valid, donate):
        y, after = super()._extend(x, state, valid, donate)
        state.S.copy_(after.S)
        return y, after


class AlwaysDonates(Softmax):
    def _extend(self, x, state, valid, donate):
        return super()._extend(x, state, valid, True)


class ClaimsToGrow(Linear):
    capabilities = replace(Linear.capabilities, state="T D")


class LendsItsStore(Compressed):
    """States share their storage until one of them writes."""

    def _extend(self, x, state, valid, donate):
        y, after = super()._extend(x, state, valid, donate)
        first, last = state.length, after.length
        is_written = ((first == 0) | (first // self.factor < last // self.factor)).any()
        return y, after if is_written else replace(after, k=state.k, v=state.v)


class MisplacesUnreadTokens(Softmax):
    """Where lengths cannot be read, it is given other tokens."""

    def _extend(self, x, state, valid, donate):
        return super()._extend(x.flip(-1) if plain_alone() else x, state, valid, donate)


class GrowsUnread(Softmax):
    """Where lengths cannot be read, the store gets one column more than it needs."""

    def _extend(self, x, state, valid, donate):
        y, after = super()._extend(x, state, valid, donate)
        if plain_alone():
            k, v = (torch.nn.functional.pad(z, (0, 0, 0, 1)) for z in (after.k, after.v))
            after = replace(after, k=k, v=v)
        return y, after


class LooksAheadInTraining(Softmax):
    def mix(self, x, context, mask):
        y = super().mix(x, context, mask)
        return y + 1e-8 * x.mean(1, keepdim=True) if self.training else y


class ForgetsGlobalTokens(Local):
    def __init__(self, dim, *, num_heads, window_size=2):
        super().__init__(dim, num_heads=num_heads, window_size=window_size)

    def mix(self, x, context, mask):
        return super().mix(x, context, replace(mask, global_tokens=None))


class RoundsToBfloat16(Softmax):
    def mix(self, x, context, mask):
        y = super().mix(x, context, mask)
        return y.bfloat16().float() if y.dtype == torch.float32 else y


class RoundsGradientsToBfloat16(Softmax):
    def mix(self, x, context, mask):
        y = super().mix(x, context, mask)
        if y.requires_grad and y.dtype == torch.float32:
            y.register_hook(lambda dy: dy.bfloat16().float())
        return y


class LosesItsGradientsInABadDraw(Softmax):
    """In one of the three draws of the law."""

    def mix(self, x, context, mask):
        y = super().mix(x, context, mask)
        if y.requires_grad and y.dtype == torch.float32 and x.detach()[0, 0, 0] < 0:
            y.register_hook(lambda dy: dy * torch.nan)
        return y


class MapWithoutMask(Softmax):
    def _observe(self, x, context, mask):
        return super()._observe(x, context, replace(mask, causal=False))


class HeadsBeforeTheirNorm(Softmax):
    def _observe(self, x, context, mask):
        heads = self._mixed(x, context, mask)
        return super()._observe(x, context, mask)._replace(heads=2 * heads)


class HeadsBeforeTheirGate(Softmax):
    def mix(self, x, context, mask):
        return self.heads.merge(2 * self._mixed(x, context, mask))


class ValuesWithoutHeads(Softmax):
    def _observe_heads(self, x, context, mask):
        return super()._observe_heads(x, context, mask)._replace(heads=None)


class AnswersInDouble(Softmax):
    def mix(self, x, context, mask):
        return super().mix(x, context, mask).double()


class DividesByANorm(Softmax):
    """A half-precision norm of an absent token, which is zero."""

    def mix(self, x, context, mask):
        return super().mix(x, context, mask) + 0 * (
            x * x.norm(dim=-1, keepdim=True).clamp_min(1e-6).reciprocal()
        )


class MixesTheBatch(Softmax):
    def mix(self, x, context, mask):
        return super().mix(x - 1e-6 * x.mean(0, keepdim=True), context, mask)


class NotANumber(Softmax):
    """The usual softmax over a row of minus infinities."""

    def mix(self, x, context, mask):
        q, k, v = self.heads.split(x, context)
        allowed = mask.dense(x.shape[1], k.shape[2], device=x.device)
        scores = (q @ k.transpose(-1, -2)).masked_fill(~allowed, -torch.inf)
        return self.heads.merge(scores.softmax(-1) @ v)


class NeedsTwoTokens(Outsider):
    def mix(self, x, context, mask):
        return super().mix(x, context, mask) / (0 if x.shape[1] == 1 else 1)


class RollsDice(Softmax):
    def mix(self, x, context, mask):
        return super().mix(x, context, mask) + 1e-6 * torch.randn_like(x)


class CountsAbsentRows(Softmax):
    def __init__(self, dim, *, num_heads):
        super().__init__(dim, num_heads=num_heads)
        self.register_buffer("rows", torch.zeros(()))
        self.seen = 0

    def mix(self, x, context, mask):
        self.seen += len(x)
        return super().mix(x, context, mask)

    def _after_step(self):
        self.rows += self.seen


class KeepsWhatItSaw(Softmax):
    """What is observed waits on the module."""

    def mix(self, x, context, mask):
        self.seen = self.heads.values(x)
        return super().mix(x, context, mask)

    def _observe_heads(self, x, context, mask):
        self.mix(x, context, mask)
        return Observation(v=self.seen)


class Counts(Softmax):
    def __init__(self, dim, *, num_heads):
        super().__init__(dim, num_heads=num_heads)
        self.register_buffer("calls", torch.zeros(()))

    def mix(self, x, context, mask):
        self.calls += 1
        return super().mix(x, context, mask)


class KeepsATensor(Softmax):
    def __init__(self, dim, *, num_heads):
        super().__init__(dim, num_heads=num_heads)
        self.shift = torch.randn(dim, dtype=torch.float64)

    def mix(self, x, context, mask):
        return super().mix(x, context, mask) + self.shift


class KeepsWhatMemoryHeld(Softmax):
    def __init__(self, dim, *, num_heads):
        super().__init__(dim, num_heads=num_heads)
        self.register_buffer("gain", torch.ones(()), persistent=False)

    def mix(self, x, context, mask):
        return super().mix(x, context, mask) * self.gain


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


class OneTypeOnly(Softmax):
    def mix(self, x, context, mask):
        y = super().mix(x, context, mask)
        everywhere = torch.arange(x.shape[1], device=x.device)
        return torch.zeros_like(x).index_copy_(1, everywhere, y)


class LooksAtValues(Softmax):
    def mix(self, x, context, mask):
        return super().mix(x if x.sum().item() > 0 else x + 0, context, mask)


class ClaimsLinear(Softmax):
    capabilities = replace(Softmax.capabilities, time="T H K")


class ClaimsNoMemory(Linear):
    capabilities = replace(Linear.capabilities, memory="H K V")


class ClaimsASumWithoutItsFastestTerm(Linear):
    capabilities = replace(Linear.capabilities, time="T H M V + T^2 H K")


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


class SilentAfter64(Softmax):
    def mix(self, x, context, mask):
        early = torch.arange(x.shape[1], device=x.device) < 64
        return torch.where(early[:, None], super().mix(x, context, mask), x.new_zeros(()))


class WrongSumAtABorder(Linear):
    """The first token of every chunk but the first is summed twice."""

    def mix(self, x, context, mask):
        y = super().mix(x, context, mask)
        at = torch.arange(x.shape[1], device=x.device)
        repeated = (at >= CHUNK) & (at % CHUNK == 0) if mask.causal else at < 0
        return torch.where(repeated[:, None], y + 1e-3 * x, y)


class WrongSumWithoutBlocks(Outsider):
    """Its own chunks, of which `impl` knows nothing."""

    def mix(self, x, context, mask):
        y = super().mix(x, context, mask)
        return y + 1e-3 * (torch.arange(x.shape[1], device=x.device) >= 64)[:, None]


class NoGradientBetweenPieces(Linear):
    """Keys of earlier pieces are constants to later queries."""

    def mix(self, x, context, mask):
        if not mask.causal or x.shape[1] <= PIECE:
            return super().mix(x, context, mask)
        y, early = super().mix(x, context, mask), x[:, :PIECE]
        cut = super().mix(torch.cat([early.detach(), x[:, PIECE:]], 1), context, mask)
        return torch.cat([y[:, :PIECE], cut[:, PIECE:]], 1)


class DropsOutInEvaluation(Softmax):
    def mix(self, x, context, mask):
        return nn.functional.dropout(super().mix(x, context, mask), 0.1, training=True)


class WrapsAtItsCapacity(Softmax):
    """From token CAPACITY on the state begins anew."""

    def _extend(self, x, state, valid, donate):
        if int(state.length.max()) >= CAPACITY:
            state = self._initial_state(x.shape[0], None, None, None)
        return super()._extend(x, state, valid, donate)


class IsAnotherInItsPlainForm(Softmax):
    """In outputs."""

    def mix(self, x, context, mask):
        plain = getattr(self.impl, "name", self.impl) == "plain"
        return super().mix(x, context, mask) * (1 + 1e-6 * plain)


class HasAnotherGradientInItsPlainForm(Softmax):
    def mix(self, x, context, mask):
        plain = getattr(self.impl, "name", self.impl) == "plain"
        return super().mix(torch.where(x > 1.5, x.detach(), x) if plain else x, context, mask)


class PairsWithoutAMap(Softmax):
    capabilities = replace(Softmax.capabilities, attention_map=No("left out of this example"))


class RefusesSilently(Linear):
    def require(self, what):
        return None


class _Squared(torch.autograd.Function):
    """x^2, with a backward by hand that autograd takes for a constant."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.square()

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        return 2 * dy * ctx.saved_tensors[0]


class HasOneDerivative(Softmax):
    def mix(self, x, context, mask):
        return super().mix(x + _Squared.apply(x), context, mask)


class HasOneDerivativeBehindABorder(Softmax):
    def mix(self, x, context, mask):
        early = torch.arange(x.shape[1], device=x.device)[:, None] < PIECE
        return super().mix(x + torch.where(early, x.square(), _Squared.apply(x)), context, mask)


class _Constant(torch.autograd.Function):
    """x^2, of which a program that keeps the forward alone has no gradient."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.detach().square()

    @staticmethod
    def backward(ctx, dy):
        return 2 * dy * ctx.saved_tensors[0]


class ExportsNoGradient(Softmax):
    def mix(self, x, context, mask):
        return super().mix(x + _Constant.apply(x), context, mask)


class LoopsOverTime(Outsider):
    def mix(self, x, context, mask):
        sums = list[torch.Tensor]()
        for value in super().mix(x, context, mask).split(1, dim=1):
            sums.append(value)
        return torch.cat(sums, dim=1)


class DetachesAFactor(Softmax):
    def mix(self, x, context, mask):
        return super().mix(x, context, mask) * (1 + 1e-6 * x.detach().amax())


class IsAnotherFunctionUnderTorchFunc(Softmax):
    def mix(self, x, context, mask):
        if torch._C._are_functorch_transforms_active():
            x = x * (1 + 1e-6)
        return super().mix(x, context, mask)


class IgnoresDocuments(Linear):
    def forward(self, x, *, context=None, mask=OPEN):
        return super().forward(x, context=context, mask=replace(mask, documents=None))


class StreamsThroughDocuments(Linear):
    def extend(self, x, state, *, valid=None, documents=None, donate=False):
        return super().extend(x, state, valid=valid, donate=donate)


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


BROKEN = [
    ("fast", IsAnotherInItsPlainForm),
    ("fast", HasAnotherGradientInItsPlainForm),
    ("derivative", DetachesAFactor),
    ("derivative", HasOneDerivative),
    ("second_derivative", HasOneDerivative),
    ("second_derivative", HasOneDerivativeBehindABorder),
    ("transforms", HasOneDerivative),
    ("transforms", LooksAtValues),
    ("transforms", IsAnotherFunctionUnderTorchFunc),
    ("reference", WrongScale),
    ("limit", NotItsLimit),
    ("causality", SeesTheFuture),
    ("causality", KnowsTheLength),
    ("padding", CountsPadding),
    ("sensitivity", DoesNothing),
    ("sensitivity", DeafInOneDraw),
    ("isolation", IgnoresPairs),
    ("streaming", DecaysAtAbsentTokens),
    ("padding", DecaysAtAbsentTokens),
    ("packed", IgnoresDocuments),
    ("packed", StreamsThroughDocuments),
    ("packed", BeginsDocumentsWithWhatItKept),
    ("long", DecaysAtAbsentTokens),
    ("causality", LeaksBehindItsFirstChunk),
    ("long", LeaksBehindItsFirstChunk),
    ("streaming", ForgetsThePast),
    ("streaming", RemembersAnothersPast),
    ("streaming", ChangesItsState),
    ("map", MapWithoutMask),
    ("observed", HeadsBeforeTheirNorm),
    ("observed", HeadsBeforeTheirGate),
    ("observed", ValuesWithoutHeads),
    ("types", AnswersInDouble),
    ("types", DividesByANorm),
    ("batch", MixesTheBatch),
    ("empty", NotANumber),
    ("empty_batch", CountsAbsentRows),
    ("lengths", NeedsTwoTokens),
    ("randomness", RollsDice),
    ("randomness", Counts),
    ("threads", KeepsWhatItSaw),
    ("transfer", KeepsATensor),
    ("transfer", GatesBesideItsHeads),
    ("transfer", KeepsWhatMemoryHeld),
    ("autocast", OneTypeOnly),
    ("compiled", LooksAtValues),
    ("exported", ExportsNoGradient),
    ("free_length", LoopsOverTime),
    ("complexity", ClaimsLinear),
    ("complexity", ClaimsNoMemory),
    ("complexity", ClaimsASumWithoutItsFastestTerm),
    ("training_memory", KeepsEveryTile),
    ("refusals", RefusesSilently),
    ("low_precision", RoundsToBfloat16),
    ("low_precision", RoundsGradientsToBfloat16),
    ("low_precision", LosesItsGradientsInABadDraw),
    ("causality", LooksAheadInTraining),
    ("sensitivity", ForgetsGlobalTokens),
    ("streaming", AlwaysDonates),
    ("streaming", ClaimsToGrow),
    ("streaming", LendsItsStore),
    ("streaming", MisplacesUnreadTokens),
    ("streaming", GrowsUnread),
    ("long", SilentAfter64),
    ("long", WrongSumAtABorder),
    ("long", WrongSumWithoutBlocks),
    ("long", NoGradientBetweenPieces),
    ("randomness", DropsOutInEvaluation),
    ("long", WrapsAtItsCapacity),
]
WORDS = {
    HasOneDerivativeBehindABorder: "701 tokens",
    IsAnotherFunctionUnderTorchFunc: "vmap",
    RoundsToBfloat16: "float32: output",
    RoundsGradientsToBfloat16: "float32: gradient",
    LosesItsGradientsInABadDraw: "float32: gradient of x: error inf",
    LooksAheadInTraining: "in training",
    ForgetsGlobalTokens: "global",
    AlwaysDonates: "without donate",
    ClaimsToGrow: "declared to grow",
    LendsItsStore: "two branches",
    MisplacesUnreadTokens: "no value read: differs",
    GrowsUnread: "changed shapes",
    HeadsBeforeTheirNorm: "heads without the weights",
    HeadsBeforeTheirGate: "what forward projects",
    ValuesWithoutHeads: "values alone",
    AnswersInDouble: "output is torch.float64, the input torch.float16",
    DividesByANorm: "not finite in torch.float16",
    GatesBesideItsHeads: "`beside_heads`",
    KeepsWhatMemoryHeld: "does not restore gain, which keeps what memory held",
    LoopsOverTime: "not exported for any length",
    SilentAfter64: "outputs of tokens 64 to 127 are zero",
    WrongSumAtABorder: "extend",
    WrongSumWithoutBlocks: "67 tokens",
    NoGradientBetweenPieces: "along a direction",
    WrapsAtItsCapacity: "extend",
}
"""What the error says, where a law has several parts."""


def make(cls):
    return cls(24) if issubclass(cls, Outsider | Flash) else cls(24, num_heads=3)


@pytest.mark.parametrize(
    ("law", "cls"), BROKEN, ids=lambda value: getattr(value, "__name__", value)
)
def test_a_broken_mixer_is_caught(law, cls, monkeypatch):
    monkeypatch.setattr("regard.testing.laws.cost.RANGES", ((1024, 4096),))  # longer is dear
    oracle = regard.reference.softmax if issubclass(cls, Softmax) else None
    if cls is WrongSumWithoutBlocks:
        oracle = running_mean
    with pytest.raises(LawError, match=f"^{law}: .*{WORDS.get(cls, '')}"):
        check_mixer(lambda: make(cls), law, oracle=oracle)


def test_poison_is_caught_when_the_door_does_not_clear(monkeypatch):
    monkeypatch.setattr(Compaction, "of", lambda order, x: permute(x, order.source))
    with pytest.raises(LawError, match=r"^poison: "):
        check_mixer(lambda: make(Outsider), "poison")


class Narrow(Local):
    def __init__(self, dim, *, num_heads):
        super().__init__(dim, num_heads=num_heads, window_size=4)


def test_limits_of_a_parent_are_not_asked_of_a_class_without_its_options():
    (verdict,) = check_mixer(lambda: make(Narrow), "limit").verdicts
    assert verdict.outcome == "does not apply"


def test_another_start_after_reset_is_noted():
    (verdict,) = check_mixer(lambda: make(StartsElsewhere), "transfer").verdicts
    assert verdict.outcome == "cannot judge"
    assert "does not restore first.weight, whose standard deviation is" in verdict.sentence


def test_every_law_was_seen_to_fail():
    assert {law for law, _ in BROKEN} | {"poison"} == set(LAWS)


def test_an_outsiders_sound_mixer_passes_every_law():
    assert check_mixer(lambda: make(Outsider)) == list(LAWS)


def test_what_a_law_cannot_judge_is_said():
    checked = check_mixer(lambda: PairsWithoutAMap(24, num_heads=3), ["sensitivity", "batch"])
    assert checked == ["sensitivity", "batch"] and set(checked.of("passed")) == {"batch"}
    assert "pairwise" in checked.of("cannot judge")["sensitivity"]
    found = check_mixer(lambda: make(Outsider), ["reference", "streaming", "limit"])
    assert "no oracle" in found.of("cannot judge")["reference"]
    assert found.of("does not apply")["streaming"].endswith("left out of this example")


def test_a_broken_law_does_not_end_a_run_of_verdicts():
    verdicts = list(judge_mixer(lambda: make(DoesNothing), ["sensitivity", "batch"]))
    assert [verdict.outcome for verdict in verdicts] == ["failed", "passed"]
    assert "no output but its own" in verdicts[0].sentence


def test_a_law_that_does_not_exist_is_named():
    with pytest.raises(regard.UnknownNameError, match="Did you mean 'causality'"):
        check_mixer(lambda: make(Outsider), "causalty")


def test_observation_is_empty_where_a_mixer_has_nothing_to_show():
    assert (
        make(Outsider).observe(torch.zeros(1, 2, 24), mask=regard.Mask(causal=True))
        == Observation()
    )
