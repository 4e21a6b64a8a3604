"""The page: what a model attends to as one HTML file that opens from disk, loads nothing and runs nothing but its own script.

    page(model, tokens, words=[["The", "cat", ...]]).save("attention.html")       in a notebook, the page is shown

Every text of an input is shown as text (`regard.explore.page`). Weights are kept at as many levels as fit `max_bytes`.
"""

import html
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from regard.core import CheckedOptions, Count, OptionError, RegardError, checked, existing
from regard.core.files import AnyPath, whole
from regard.explore.agreement import agreement
from regard.explore.attribution import (
    Answer,
    flow,
    gradient_times_attention,
    integrated_gradients,
    last_logits,
    leave_one_out,
    rollout,
)
from regard.explore.inputs import (
    Group,
    ImageSize,
    Inputs,
    Reading,
    Words,
    as_inputs,
    image_size,
    readings,
)
from regard.explore.packed import Data, pack
from regard.explore.page import filled
from regard.explore.readout import Measure, validity

MOST_FLOW = 20  # tokens; a maximum flow for each takes seconds beyond
MOST_ATTRIBUTED = 512  # tokens; a forward for each


@dataclass(frozen=True)
class Page(metaclass=CheckedOptions):
    """One self-contained HTML file as text."""

    html: str

    @checked
    def save(self, path: AnyPath) -> Path:
        """Write it, whole or not at all; returns where it is. Raises PathError."""
        path = Path(path)
        with whole(path) as partial:  # half a letter, which UTF-8 does not have, by its number
            partial.write_text(self.html, "utf-8", "xmlcharrefreplace")
        return path

    def _repr_html_(self) -> str:
        """In a notebook: a frame that may run the page's script and reach nothing else."""
        inside = html.escape(self.html)
        return f'<iframe sandbox="allow-scripts" srcdoc="{inside}" width="100%" height="900" style="border:0" title="attention"></iframe>'


def page(
    model: nn.Module,
    inputs: Any,
    *,
    words: Words | None = None,
    others: Words | None = None,
    compare: nn.Module | None = None,
    names: Sequence[str] = ("this model", "the other"),
    title: str = "What it attends to",
    measure: Measure = "auto",
    probes: int | None = 8,
    attributions: bool = True,
    answer: Answer | tuple[Answer, Answer] = last_logits,
    label: Count | None = None,
    image: ImageSize = None,
    window: int = 512,
    max_bytes: int = 13_000_000,
) -> Page:
    """A page of every mixer's weights (or influence) for these inputs, head by head.

    inputs: the model's first argument, a tuple of its arguments, a mapping of them by name, a batch of fields, or Inputs. words,
    others: for the first and second argument, one list for each row. compare: a second model on the same inputs, side by side.
    measure, probes: as in `readout`. attributions: of the first argument's tokens, to the logit that `answer` (of each model, where
    there are two answers) and `label` choose.
    image: height and width where the tokens are pixels. window: queries and keys that are drawn at a time. A page holds all
    windows of an input, or those along the diagonal of a long one, which it says.

    Raises UnsupportedError where a model has nothing to show, OptionError where the weights do not fit max_bytes.
    """
    shown: Data = {"words": words, "others": others, "image": image}
    given = replace(as_inputs(inputs, model), **{k: v for k, v in shown.items() if v is not None})
    models = [model] if compare is None else [model, compare]
    answers = answer if isinstance(answer, tuple) else (answer, answer)
    if len(names) < len(models):
        raise OptionError(f"page: names must hold {len(models)}, got {list(names)}")
    read = [readings(one, given, measure=measure, probes=probes) for one in models]
    groups = [group for pair in zip(*read, strict=True) for one in pair for group in one.groups]
    packed = iter(pack(groups, window=window, max_bytes=max_bytes))
    pictures = _pictures(model, given)
    examples = []
    for row, pair in enumerate(zip(*read, strict=True)):
        sides = []
        for one, reading, own in zip(models, pair, answers, strict=False):
            told = _attributions(one, given, row, reading, own, label) if attributions else None
            packs = [next(packed) for _ in reading.groups]
            sides.append({"groups": packs, "document": reading.document, "attribution": told})
        drawn = pictures and pictures[row]
        examples.append({"label": pair[0].label, "image": drawn, "sides": sides})
    shown_names = [*map(str, names[: len(models)])]
    return Page(render({"title": title, "models": shown_names, "examples": examples}))


def render(data: Data) -> str:
    """The file around these data."""
    return filled("regard.explore", data["title"], data, "weights.js", "page.js")


# ---------------------------------------------------------------------- images


def _pictures(model: nn.Module, inputs: Inputs) -> list[Data] | None:
    """The picture of each row, where tokens are pixels or patches."""
    config = getattr(model, "config", None)
    size = inputs.image or image_size(config)
    patch, channels = (getattr(config, name, 1) for name in ("patch_size", "channels"))
    if size is None or not inputs.args or not isinstance(inputs.args[0], Tensor):
        return None
    tokens, (height, width) = inputs.args[0], size
    if tokens.ndim != 2 or tokens.shape[1] != channels * height * width:
        if inputs.image is None:
            return None
        raise OptionError(
            f"page: image ({height}, {width}) has {height * width} pixels, and the input {tokens.shape[-1]} tokens"
        )
    levels = max(getattr(config, "vocab_size", 256) - 1, 1)
    shades = (tokens.double() * 255 / levels).clamp(0, 255).round().int().tolist()
    frame = {"height": height, "width": width, "patch": patch, "channels": channels}
    return [frame | {"shades": row} for row in shades]


# ---------------------------------------------------------------------- attributions


def _attributions(
    model: nn.Module, inputs: Inputs, row: int, reading: Reading, answer: Answer, label: int | None
) -> Data | None:
    """Every method that serves this model, and the reason for each that does not."""
    tokens = inputs.args[0] if inputs.args else None
    if not isinstance(tokens, Tensor) or tokens.ndim != 2 or tokens.is_floating_point():
        return None
    T = tokens.shape[1]
    found = (g for g in reading.groups if not g.cross and len(g.rows) == len(g.cols) == T)
    if (group := next(found, None)) is None:
        return None
    if T > MOST_ATTRIBUTED:
        few = f"drawn for at most {MOST_ATTRIBUTED} tokens, here are {T}; the functions of regard.explore take more"
        return {"words": [], "methods": [], "reasons": [["all five", few]], "agreement": []}
    args, kwargs = tree_map_only(
        Tensor,
        lambda z: z[row : row + 1],
        (inputs.args, {**inputs.kwargs, "answer": answer, "label": label}),
    )
    scores = {}
    reasons = []
    shown = existing(tokens, validity(inputs.kwargs))[row].bool().cpu()
    stack = [one for one in reading.groups if one.name == group.name]
    for name, method in _methods(model, stack, shown, args, kwargs).items():
        try:
            one = method().detach().cpu().double()
            if not one.isfinite().all():
                raise OptionError("some of its scores are NaN or infinite")
            scores[name] = one
        except (RegardError, TypeError) as error:
            reasons.append([name, str(error)])
    agreed = agreement({name: z[shown] for name, z in scores.items()}) if shown.sum() > 1 else []
    return {
        "words": group.rows,
        "methods": [[name, [float(f"{s:.4g}") for s in z.tolist()]] for name, z in scores.items()],
        "reasons": reasons,
        "agreement": [[*a[:2], *(None if x != x else round(x, 3) for x in a[2:])] for a in agreed],
    }


def _methods(
    model: nn.Module, stack: list[Group], valid: Tensor, args: tuple, kwargs: Data
) -> dict[str, Callable[[], Tensor]]:
    """Name -> scores [T] of the first argument's tokens, from the maps of a stack's layers or from calls of the model; valid [T]."""
    T = len(valid)
    layered = {at: sheet for one in stack for at, sheet in zip(one.calls, one.sheets, strict=True)}
    sheets = [layered[at] for at in sorted(layered)]
    last = int(valid.nonzero()[-1]) if valid.any() else T - 1
    maps = [sheet.values[None] for sheet in sheets if sheet.kind != "influence"]
    maps = [weights for weights in maps if weights.shape[2:] == (T, T)]
    normalise = any(sheet.kind != "stochastic" for sheet in sheets)
    causal = all((m.triu(1) == 0).all() for m in maps) if maps else False

    def through(layers: Callable[..., Tensor]) -> Tensor:
        if len(maps) < len(sheets):
            raise OptionError(
                "a layer has no weights of tokens by tokens, and shares of influence do not multiply"
            )
        if layers is not rollout and (not causal or T > MOST_FLOW):
            raise OptionError(
                f"flow is drawn for causal models of at most {MOST_FLOW} tokens; regard.explore.flow takes a query"
            )
        return layers(maps, normalise=normalise)[0]

    def rolled() -> Tensor:
        found = through(rollout)
        return found[last] if causal else found[valid].mean(0)

    def graded() -> Tensor:
        products = gradient_times_attention(model, *args, **kwargs)
        own = [products[at][0] for at in layered if products[at].shape[-2:] == (T, T)]
        return torch.stack([one.sum((0, 1)) for one in own]).sum(0)

    return {
        "rollout" + (" (rows normalised)" if normalise else ""): rolled,
        "flow": lambda: through(partial(flow, query=last)),
        "gradient × attention": graded,
        "integrated gradients": lambda: integrated_gradients(model, *args, **kwargs).scores[0],
        "leave one out": lambda: leave_one_out(model, *args, **kwargs)[0],
    }
