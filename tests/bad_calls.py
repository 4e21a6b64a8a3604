"""Bad calls, generated: constructors and methods of everything in the catalogues, with one argument that is likely wrong.

    python -m tests.bad_calls 10000

Each call ends in an error of this library, or in a result where the argument was one that the signature takes. Anything
else is a finding: "raw", an error of torch or Python, or "silent", a value of a wrong type that was accepted.
"""

import inspect
import itertools
import random
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import chdir
from copy import deepcopy
from dataclasses import dataclass, is_dataclass, replace
from functools import partial
from tempfile import TemporaryDirectory
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import torch
import transformers
from torch import Tensor

import regard
from regard.core import VARIADIC, Mask, Mixer, RegardError, outline
from regard.functional import patterns
from regard.functional.patterns import Window
from regard.functional.relative import Terms, distances
from regard.functional.scored import Windows
from regard.lab.tables import TableClassifier
from regard.lab.train.config import TrainConfig
from regard.mixers import MIXERS, build
from regard.models import MODELS, AutoIntConfig
from regard.models.config import ModelConfig
from regard.models.language_model import LanguageModelConfig
from regard.nn import SCORES, MultiheadAttention
from regard.pools import POOLS
from regard.positions import POSITIONS
from tests.models.small import prompts
from tests.models.test_every_model import CASES, given as given_to, made

B, T, D, VOCAB = 2, 5, 8, 9
FACTS: Mapping[str, Any] = {"dim": D, "num_heads": 2, "max_len": 16}
LATER = {"Column": regard.lab.Column, "ModelConfig": ModelConfig, "dist": torch.distributed}
"""What some annotations name and their modules import for type checkers alone."""
MADE = (patterns.Scattered, patterns.Union, patterns.All)
"""Patterns that the library makes: BigBird's table, what `|` gives; and the one without options."""
MORE = ("args", "kwargs", "more", "options", "index", "observation")
"""What is not exchanged: an index may lie on a device, where its values are not read; an observation is what `observe` gives."""

VALUES: tuple[Any, ...] = (
    *("zz", "false", "", "softmax", b"x"),
    *(None, True, False, ..., object(), int, abs, NotImplemented),
    *(-1, 0, 1, 2, 3, 7, 2**31, 10**13, 10**20, 10**400, -(10**400)),
    *(0.5, 1.0, 1.5, -0.1, 1e300, float("nan"), float("inf"), float("-inf"), 1j),
    *([], (), {}, set(), [1], (1, 2)),
    *(["softmax"], ("a", 1), {"a": 1}, {1: 2}, [None], ((1, 0),)),
    *(torch.ones(2), torch.tensor(3)),
)
_DTYPES = (
    *(torch.float64, torch.float16, torch.bfloat16, torch.float32, torch.complex64),
    *(torch.int64, torch.int32, torch.int8, torch.uint8, torch.bool, torch.float8_e4m3fn),
)


class BadCalls(NamedTuple):
    outcomes: Counter[str]  # refused, valid, raw or silent
    by_subject: Counter[str]  # how many calls went to mixers, pools, states and so on
    findings: list[str]  # neither an error of this library nor a result that its signature promises


@dataclass(frozen=True)
class Case:
    """A function, arguments that it takes, and the types of those that may be exchanged."""

    subject: str
    label: str
    call: Callable[..., Any]
    given: Mapping[str, Any]
    types: Mapping[str, Any]


def bad_calls(count: int = 10_000, seed: int = 0) -> BadCalls:
    """Generate and make so many calls; the same seed makes the same calls."""
    rng, made = random.Random(seed), BadCalls(Counter(), Counter(), [])
    with (
        torch.random.fork_rng(devices=[]),
        warnings.catch_warnings(action="ignore"),
        TemporaryDirectory() as folder,
        chdir(folder),  # some calls write files
    ):
        torch.manual_seed(seed)
        by_subject: dict[str, list[Case]] = {}
        for case in (case for case in _cases() if case.types):
            by_subject.setdefault(case.subject, []).append(case)
        for subject in itertools.islice(itertools.cycle(by_subject), count):
            outcome, told = _outcome(rng.choice(by_subject[subject]), rng)
            made.outcomes[outcome] += 1
            made.by_subject[subject] += 1
            if outcome in ("raw", "silent"):
                made.findings.append(told)
    return made


def _outcome(case: Case, rng: random.Random) -> tuple[str, str]:
    """What came of a call with one argument exchanged, and what it was."""
    # A call may take a state for good.
    given = {key: deepcopy(z) if key == "state" else z for key, z in case.given.items()}
    name, value, said = rng.choice(list(case.types)), None, "it is accepted"
    try:
        value = given[name] = _likely_wrong(given.get(name), case.types[name], rng)
        result = case.call(**given)
        if isinstance(result, Iterator):
            list(result)  # it does nothing before it is asked
        wrong = all(_plainly_not(kind, value) for kind in _members(case.types[name]))
        outcome = "silent" if wrong else "valid"
    except RegardError:
        outcome = "refused"
    except Exception as error:
        outcome, said = "raw", f"{type(error).__name__}: {error}".partition("\n")[0]
    return outcome, f"{case.label}({outline({name: value})[:120]}): {said}"


def _likely_wrong(good: Any, kind: Any, rng: random.Random) -> Any:
    """A value of another type, or the good one with something changed."""
    members = _members(kind)
    if rng.random() < 0.8:
        if isinstance(good, Mask):
            return _mask(rng)
        if isinstance(good, Tensor):
            return _tensor(good, rng)
        if any(hasattr(member, "array_type") or member is Tensor for member in members):
            return _tensor(torch.ones(B, T, dtype=torch.bool), rng)
        if isinstance(good, dict) and good:  # one value is left out or exchanged
            name = rng.choice(list(good))
            if rng.random() < 0.2:
                return {key: value for key, value in good.items() if key != name}
            return good | {name: _likely_wrong(good[name], type(good[name]), rng)}
    a_function = any(get_origin(member) is Callable for member in members)
    return rng.choice([v for v in VALUES if not (a_function and callable(v))])


def _tensor(good: Tensor, rng: random.Random) -> Any:
    if not good.dim():
        good = good[None]
    changes: list[Callable[[], Any]] = [
        lambda: good.to(rng.choice(_DTYPES)), lambda: good.to("meta"), lambda: good.to_sparse(),
        lambda: good.tolist(), lambda: good.detach().numpy(), lambda: good[0], lambda: good[None],
        lambda: good[:0], lambda: good[..., :0], lambda: good[..., :-1],
        lambda: torch.cat([good] * rng.choice((2, 9)), dim=rng.randrange(good.dim())),
        lambda: torch.zeros_like(good), lambda: good.transpose(0, -1),
        lambda: good + rng.choice((10**6, -7, float("nan"), float("inf"))),
        lambda: good.clone().requires_grad_() if good.is_floating_point() else good.float(),
        lambda: torch.nested.nested_tensor(list(good.float())) if good.dim() > 1 else good,
    ]  # fmt: skip
    return rng.choice(changes)()


def _mask(rng: random.Random) -> Mask:
    """A mask with one odd field."""
    ones = torch.ones(B, T, dtype=torch.bool)
    good: dict[str, Any] = {"valid": ones, "global_tokens": ones, "shift": torch.zeros(B).long()}
    good |= {"pairwise": torch.ones(1, 1, T, T, dtype=torch.bool), "documents": ones.long()}
    kinds = _hints(Mask.__init__)
    name = rng.choice(list(kinds))
    given = rng.choice(({}, {"valid": ones, "compact": True}))
    given |= {"causal": rng.random() < 0.5, name: _likely_wrong(good.get(name), kinds[name], rng)}
    return Mask(**given)


def _members(kind: Any) -> Sequence[Any]:
    if get_origin(kind) is Annotated:
        return _members(get_args(kind)[0])
    if get_origin(kind) in (Union, UnionType):
        return [one for member in get_args(kind) for one in _members(member)]
    return [kind]


def _plainly_not(kind: Any, value: Any) -> bool:
    """True only where the annotation is simple and the value plainly is not of it."""
    outer = Tensor if hasattr(kind, "array_type") else get_origin(kind) or kind
    if outer is Literal:
        return not any(value is choice or value == choice for choice in get_args(kind))
    if outer is float:
        return type(value) not in (int, float) or value != value
    if outer in (int, bool, str):
        return type(value) is not outer
    if outer is Any or not isinstance(outer, type):
        return False
    return not isinstance(value, outer) or (outer is Sequence and isinstance(value, str | bytes))


def _cases() -> Iterator[Case]:
    of_parts = (_mixers, functionals, _parts, _pools_scores_positions, _models, _torchs_layer)
    for part in (*of_parts, _explorer, _adapters, _laboratory, _tables):
        yield from part()
    yield Case("masks", "Mask", Mask, {}, _hints(Mask.__init__))


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    found = get_type_hints(function, localns=LATER, include_extras=True)
    return {name: kind for name, kind in found.items() if name != "return"}


def _case(subject: str, entry: Any, given: Mapping[str, Any], **changes: Any) -> Case:
    """A function, class or method, called with what `given` has for its parameters."""
    parameters = inspect.signature(entry).parameters.items()
    named = [name for name, p in parameters if p.kind not in VARIADIC and name in given]
    hints = _hints(entry.__init__ if inspect.isclass(entry) else entry)
    taken = {name: given[name] for name in named}
    return replace(Case(subject, entry.__name__, entry, taken, hints), **changes)


def _constructor(subject: str, cls: Any, given: Mapping[str, Any]) -> Case:
    """One option is none that anything has."""
    return _case(subject, cls, given, types=_hints(cls.__init__) | {"num_head": int})


def _methods(subject: str, made: Any, names: Sequence[str], given: Any) -> Iterator[Case]:
    for name in names:
        label, function = f"{type(made).__name__}.{name}", getattr(made, name)
        yield _case(subject, function, given, label=label, call=torch.no_grad()(function))


def _mixers() -> Iterator[Case]:
    for cls in MIXERS.values():
        for options in ({}, *cls.variants.values()):
            yield _constructor("mixers", cls, {**FACTS, **options})
        mixer = build(cls, **FACTS).eval()
        yield from _requests(mixer)
        if mixer.capabilities.streaming:
            yield from _streams(mixer)


def _requests(mixer: Mixer) -> Iterator[Case]:
    can = mixer.capabilities
    names = ["forward", "observe", "plan", *(["attention_map"] if can.attention_map else [])]
    for causal in [flag for flag, able in ((False, can.bidirectional), (True, can.causal)) if able]:
        for context in (None, torch.randn(B, 4, D)) if can.cross else (None,):
            given = {"x": torch.randn(B, T, D), "context": context, "mask": Mask(causal=causal)}
            yield from _methods("requests", mixer, names, given)


def _streams(mixer: Mixer) -> Iterator[Case]:
    x, valid = torch.randn(B, 3, D), torch.ones(B, 3, dtype=torch.bool)
    given = {"x": x, "donate": False}
    given |= {"valid": valid} if mixer.capabilities.padding else {}
    state = mixer.initial_state(B)
    with torch.no_grad():
        later = mixer.extend(x, state)[1]
    for one in (state, later):
        yield from _methods("states", mixer, ["extend"], given | {"state": one})
    yield from _methods("states", mixer, ["initial_state"], {"batch_size": B, "max_len": 7})


def _pools_scores_positions() -> Iterator[Case]:
    mixer = build("softmax", dim=D, num_heads=2)
    given = {**FACTS, "query_dim": D, "num_queries": 2, "num_experts": T, "mixer": mixer}
    given |= {"grid": (4, 4)}
    arguments = dict(x=torch.randn(B, T, D), valid=torch.ones(B, T, dtype=torch.bool))
    arguments |= dict(q=torch.randn(B, 2, 3, D), k=torch.randn(B, 2, T, D))
    arguments |= dict(position=torch.arange(T)[None])
    catalogues = {"pools": POOLS, "scores": SCORES, "positions": POSITIONS}
    for subject, catalogue in catalogues.items():
        for cls in catalogue.values():
            if "args" in inspect.signature(cls.__init__).parameters:
                continue
            case = _constructor(subject, cls, given)
            yield case
            made = cls(**case.given).eval()
            if subject == "positions" and made.kind != "absolute":
                continue
            has_query = getattr(made, "query_dim", None) is not None
            query = {"query": torch.randn(B, 2, D)} if has_query else {}
            names = ["forward", "weights"] if subject == "pools" else ["forward"]
            yield from _methods(subject, made, names, arguments | query)


def _models() -> Iterator[Case]:
    names = (name for name, entry in MODELS.items() if inspect.isclass(entry))
    for case in ("mmoe_fields" if name == "mmoe" else name for name in names):
        config = CASES[case]
        given, cls = vars(config), type(config)
        yield _case("models", cls, given, call=lambda cls=cls, **given: cls(**given).build())
        yield Case("models", config.name, MODELS[config.name], {}, {"config": cls})
        model = made(case).eval()
        named = [name for name in ("generate", "beam_search", "extend") if hasattr(model, name)]
        args, options = given_to(case)
        given = {"tokens": prompts(), "start": prompts(), "batch_size": 3, "max_new_tokens": 2}
        given |= inspect.signature(model.forward).bind(*args, **options).arguments
        if hasattr(model, "initial_state"):
            (begun,) = _methods("models", model, ["initial_state"], given)
            yield begun
            begin = {"source", "valid", "batch_size"} & begun.given.keys()
            given["state"] = begun.call(**{key: given[key] for key in begin})
        yield from _methods("models", model, ["forward", *named], given)


def functionals() -> Iterator[Case]:
    """Every function of `regard.functional`, with all of its arguments, at two orders and with a context where it can."""
    for name in regard.functional.__all__:
        function = getattr(regard.functional, name)
        takes_more = "S" in str(_hints(function).get("k"))
        for causal, S in itertools.product((False, True), (T, *([T + 2] if takes_more else []))):
            given, call = functional_arguments(name, S, causal), partial(_unwrapped, function)
            yield _case("functional", function, given, label=f"functional.{name}", call=call)


def _unwrapped(function: Callable[..., Any], **given: Any) -> Any:
    for name in [name for name, value in given.items() if value is _means]:
        given[name] = partial(_means, factor=given["factor"])
    if given.get("logits") is _ones:
        given["logits"] = partial(_ones, given["v"])
    return function(**given)


def functional_arguments(name: str, S: int, causal: bool) -> dict[str, Any]:
    """What `name` takes, of T queries and S keys."""
    own, cpu = name not in ("softmax_attention", "window_attention"), torch.device("cpu")
    G = 4 if own else 2
    q, k, v = torch.randn(B, 4, T, 4), torch.randn(B, G, S, 4), torch.randn(B, G, S, 3)
    weights = torch.randn(1, 4, 3, S)
    r = torch.randn(len(distances(T, S, causal, cpu)), 4, 4)
    known = dict(q=q, k=k, v=v, x=torch.randn(B, T, D), z=torch.randn(B, S, D), T=T, window=2)
    ordered = causal and name not in ("fourier_mixing", "nystrom_attention")
    known |= dict(mask=Mask(causal=ordered), impl="auto", factor=2, cross=S != T, num_landmarks=2)
    known |= dict(beta=torch.rand(B, 4, T), log_decay=-torch.rand(B, 4, T))
    known |= dict(state=torch.randn(B, 4, 4, 3), compress_k=_means, compress_v=_means)
    known |= dict(chunk_size=3, block_size=2, window_size=3, pattern=Window(2, 1))
    known |= dict(w=torch.randn(1, T, S) if name == "spatial_mixing" else torch.randn(1, 3, 4))
    known |= dict(gate=torch.randn(B, 4, S) if causal else None, sinks=torch.randn(4))
    known |= dict(buckets=torch.randint(3, (B, 4, 2, T)), E=weights, F=weights, logits=_ones)
    known |= dict(windows=Windows(torch.zeros(B, 4, T).long(), 3, torch.full((1, T), S - 1)))
    known |= dict(terms=Terms(r, r[0], r[0]), centroids=torch.randn(4, 2, 4))
    known |= dict(sorting=torch.rand(B, 4, 3, 3))
    return known | ({} if name == "window_attention" or causal else {"window": None})


def _parts() -> Iterator[Case]:
    """Layers, and the functions of packages without a room of their own."""
    mixer, line = build("softmax", dim=D, num_heads=2), torch.nn.Linear(D, D)
    block, x = regard.nn.ReversibleBlock(line, line), torch.randn(B, T, D)
    stack = LanguageModelConfig(vocab_size=VOCAB, num_layers=1, **FACTS)
    given = FACTS | dict(hidden_dim=D, normalized_shape=D, layer=line, f=line, g=line)
    given |= dict(chunk_size=2, in_channels=2, out_channels=2, kernel_size=3, num_slots=2)
    given |= dict(activation=torch.tanh, gated=False, blocks=[block], model=mixer, mixer=mixer)
    given |= dict(optimizer=torch.optim.SGD(mixer.parameters(), lr=0.0), config=stack, target=2000)
    given |= dict(observation=mixer.observe(x), facts={"dim": D}, options={}, pool="mean")
    given |= dict(tokens=torch.ones(B, T).long(), mask_token=0, vocab_size=VOCAB)
    given |= dict(state=mixer.initial_state(B), index=torch.tensor([1, 0]))
    given |= dict(documents=[[[1, 2]]], cls=POSITIONS["rotary"])
    for name in regard.nn.__all__:
        entry = getattr(regard.nn, name)
        if inspect.isclass(entry) and entry is not MultiheadAttention:
            yield _constructor("parts", entry, given)
    yield _constructor("parts", regard.mixers.HeadGroup, given | {"mixer": "softmax"})
    named = dict.fromkeys(("mixer", *FACTS, "impl"), Any)
    yield Case("parts", "build", build, {"mixer": "softmax", "dim": D, "num_heads": 2}, named)
    given |= dict(length=8, model=stack.build(), size=2)
    rooms = (regard.nn, regard.models, regard.pools, regard.positions, regard.parallel)
    sizes = dict(before=2, after=1, size=2, stride=2, block=4, width=2, count=1, start=0, stop=2)
    for entry in (one for one in vars(patterns).values() if is_dataclass(one)):
        if entry not in MADE:
            yield _case("parts", entry, sizes | {"heads": (Window(1, 1), Window(2, 2))})
    for package in rooms:
        for case in _functions("parts", package, given):
            if case.label.islower() and case.label != "extend":  # which takes ranks
                yield case
    checked = {
        "mixer": {"factory": lambda: mixer, "laws": "empty_batch"},
        "pool": {"factory": partial(POOLS["mean"], D), "laws": "batch"},
        "score": {"factory": partial(SCORES["dot"], D), "laws": "shapes"},
    }
    for name in regard.testing.__all__:
        if (kind := name.rpartition("_")[2]) in checked:
            yield _case("parts", getattr(regard.testing, name), checked[kind])


def _ones(v: Tensor, rows: slice, stop: int) -> Tensor:
    return v.new_ones(1, 1, rows.stop - rows.start, stop)


def _means(z: Tensor, factor: int = 2) -> Tensor:
    return z.unflatten(2, (-1, factor)).mean(3)


def _torchs_layer() -> Iterator[Case]:
    where = "torch's layer"
    mixer, x = build("softmax", dim=D, num_heads=2), torch.randn(B, T, D)
    of_torch = torch.nn.MultiheadAttention(D, 2, batch_first=True)
    given = {"attention": of_torch, "mixer": mixer}
    yield _case(where, MultiheadAttention, {"mixer": mixer})
    yield _case(where, MultiheadAttention.replacing, given)
    for other in (mixer, build("linear", dim=D, num_heads=2)):
        layer = MultiheadAttention(other, batch_first=True).eval()
        for key in (x, torch.randn(B, 4, D)):
            absent = torch.zeros(key.shape[:2], dtype=torch.bool)
            given = dict(query=x, key=key, value=key, key_padding_mask=absent, need_weights=False)
            if other is mixer:
                given["attn_mask"] = torch.zeros(T, key.shape[1], dtype=torch.bool)
            yield from _methods(where, layer, ["forward"], given)


def _functions(subject: str, package: Any, given: Mapping[str, Any]) -> Iterator[Case]:
    """Every public function and frozen class, called with what `given` has for its parameters."""
    for name in package.__all__:
        entry = getattr(package, name)
        if inspect.isfunction(entry) or (inspect.isclass(entry) and is_dataclass(entry)):
            case = _case(subject, entry, given)
            kinds = {key: kind for key, kind in case.types.items() if key not in MORE}
            yield replace(case, types=kinds)


def _explorer() -> Iterator[Case]:
    config = LanguageModelConfig(vocab_size=VOCAB, num_layers=1, **FACTS)
    model, ids = config.build().eval(), torch.arange(B * T).reshape(B, T) % VOCAB
    w, line = torch.rand(B, 2, T, T).softmax(-1), torch.rand(T)
    given = dict(model=model, tokens=ids, inputs=ids, args=(ids,), valid=ids > 0, steps=2, k=2)
    given |= dict(mixer=build("softmax", dim=D, num_heads=2), x=torch.randn(B, T, D))
    given |= dict(weights=w, maps=[w, w], values=w, links=torch.rand(B, 2, T, T) > 0.5, html="x")
    given |= dict(a=line, b=line.flip(0), scores={"one": line, "two": line.flip(0)})
    given |= dict(function=torch.tanh, output=torch.randn(B, T, VOCAB), kind="stochastic")
    for case in _functions("explorer", regard.explore, given):
        parameters = inspect.signature(case.call).parameters.values()
        takes_more = any(p.kind is p.VAR_KEYWORD for p in parameters)
        yield replace(case, given={**case.given, "tokens": ids}) if takes_more else case
    page = regard.explore.Page("x")
    yield from _methods("explorer", page, ["save"], {"path": "page.html"})


def _llama() -> tuple[Any, Any]:
    sizes = dict(hidden_size=D, num_hidden_layers=1, num_attention_heads=2, intermediate_size=D)
    config = transformers.LlamaConfig(vocab_size=VOCAB, **sizes)
    return transformers.LlamaForCausalLM(config).state_dict(), config


def small_llama() -> torch.nn.Module:
    source, config = _llama()
    return regard.hf.load(source, config.to_dict())


def _adapters() -> Iterator[Case]:
    source, config = _llama()
    made = small_llama()
    ids = torch.arange(B * T).reshape(B, T)
    given = dict(model=made, student=made, teacher=made, mixer="linear", batches=[(ids, None)])
    given |= dict(source=source, config=config.to_dict(), folder="folder", name="linear")
    given |= dict(optimizer=torch.optim.SGD(made.parameters(), lr=0.0))
    own = {"wrap": {"model": LanguageModelConfig(vocab_size=VOCAB)}, "register": {}}
    for case in _functions("adapters", regard.hf, given):
        yield replace(case, given=own.get(case.label, case.given))
    called = dict(tokens=ids, valid=torch.ones_like(ids, dtype=torch.bool))
    called |= dict(state=made.initial_state(B))
    yield from _methods("adapters", made, ["forward", "attention_maps", "extend"], called)
    wrapped = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids}
    yield from _methods("adapters", regard.hf.wrap(made), ["forward"], wrapped)


def _laboratory() -> Iterator[Case]:
    lab = regard.lab
    digits = regard.TASKS["digits"]()
    column = lab.Column(name="digits", task=digits, train=TrainConfig(steps=2), shell=lab.Shell())
    given = dict(of="a", beside="b", within=0.1, least=0.1, most=0.2, mixer="softmax", name="q")
    given |= dict(text="x", source="y", expected=(lab.above("a", "b"),), kind="forward", length=8)
    given |= dict(task=digits, train=column.train, vary=(column,))
    given |= dict(entries=(lab.Entry(mixer="softmax"),))
    for case in _functions("laboratory", lab, given):
        if case.label not in ("ask", "Fitted"):
            own = {"kind": "screen"} if case.label == "Question" else {}
            yield replace(case, given={**case.given, **own})


def _tables() -> Iterator[Case]:
    """Estimators check when they are fitted, as scikit-learn's do."""
    rows = {"age": [1.0, 2.0, 3.0, 4.0] * 10, "town": ["a", "b"] * 20}
    train = TrainConfig(steps=1, batch_size=2, log_dir=None)
    given = dict(model=AutoIntConfig(dim=D, num_heads=2, num_layers=1), train=train)
    given |= dict(X=rows, y=[0, 1, 1, 0] * 10, valid_share=0.3)

    def fitted(X: Any, y: Any, **options: Any) -> Any:
        return TableClassifier(**options).fit(X, y)

    kinds = _hints(TableClassifier.__init__) | {"X": Any, "y": Any}
    yield Case("tables", "TableClassifier.fit", fitted, given, kinds)


if __name__ == "__main__":
    found = bad_calls(*map(int, sys.argv[1:]))
    print(dict(found.outcomes), dict(found.by_subject), *dict.fromkeys(found.findings), sep="\n")
    sys.exit(bool(found.findings))
