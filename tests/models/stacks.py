"""Whole stacks written anew: one row at a time, valid tokens alone, norms and heads by hand, mixers by their oracles."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import batch_norm, conv2d, gelu, layer_norm, linear, rms_norm

from regard import Mask, Mixer, reference
from regard.models import StackConfig

Params = dict[str, Tensor]
Function = Callable[[Tensor], Tensor]
ACTIVATIONS = {"gelu": gelu, "relu": torch.relu}


def stack_oracle(model: nn.Module, tokens: Tensor, target: Tensor | None = None) -> Tensor:
    """What the model says of one row [T] without padding; gradients reach the model's own parameters."""
    params = dict(model.named_parameters()) | dict(model.named_buffers())
    head, config = model.config.name, model.config
    table = inside(params, "encoder.embedding.")
    if head == "patch_classifier":
        hidden = through(params, config, model.mixers, patches(params, config, tokens), False)
    else:
        x, causal = embedded(table, config, tokens), head == "language_model"
        hidden = through(inside(params, "encoder."), config, model.encoder.mixers, x, causal)
    if target is not None:
        table = inside(params, "own_embedding.") or table
        x = embedded(table, config, target)
        return decoded(inside(params, "decoder."), model, x, hidden) @ table["table.weight"].T
    if head.endswith("classifier"):
        return linear(hidden.mean(0), params["head.weight"], params["head.bias"])
    if head == "language_model":
        if "own_logits.weight" in params:
            return linear(hidden, params["own_logits.weight"], params["own_logits.bias"])
        return hidden @ table["table.weight"].T
    turned = gelu(linear(hidden, params["transform.weight"], params["transform.bias"]))
    return norm(params, "norm", turned) @ table["table.weight"].T + params["bias"]


def embedded(params: Params, config: StackConfig, tokens: Tensor) -> Tensor:
    x = math.sqrt(config.dim) * params["table.weight"][tokens]
    x = x + torch.stack([place(params, config, t) for t in range(len(tokens))])
    return norm(params, "norm", x) if config.embedding_norm else x


def patches(params: Params, config: StackConfig, levels: Tensor) -> Tensor:
    p, levels = config.patch_size, levels.view(config.channels, *config.image_size)
    picture = levels.double() * (2 / (config.vocab_size - 1)) - 1
    for n, (_, stride) in enumerate(config.stem):
        x = conv2d(picture[None], params[f"stem.{3 * n}.weight"], stride=stride, padding=1)
        own = inside(params, f"stem.{3 * n + 1}.")
        x = batch_norm(x, own["running_mean"], own["running_var"], own["weight"], own["bias"])
        picture, p = x[0].relu(), p // stride
    squares = picture.unfold(1, p, p).unfold(2, p, p)  # [C, rows, columns, p, p]
    cells = squares.permute(1, 2, 3, 4, 0).flatten(2).flatten(0, 1)
    return linear(cells, params["project.weight"], params["project.bias"])


def mixed(mixer: Mixer, params: Params, x: Tensor, context: Tensor | None = None, **mask) -> Tensor:
    """What the mixer's oracle says of x [T D] and of a context [S D]."""
    given = {"context": None if context is None else context[None]}
    given["plan"] = mixer.plan(x[None], **given, mask=Mask(**mask))
    y, _ = getattr(reference, mixer.name)(params, mixer.options, x[None], **given, **mask)
    return y[0]


def through(
    params: Params, config: StackConfig, mixers: list[Mixer], x: Tensor, causal: bool
) -> Tensor:
    """The blocks, and the norm after the last."""
    mask: dict[str, Any] = {"causal": causal}
    if config.global_tokens:
        mask["global_tokens"] = torch.arange(len(x))[None] < config.global_tokens
    activation = ACTIVATIONS[config.feed_forward]
    if config.residual == "plain":
        for n, mixer in enumerate(mixers):
            own = inside(params, f"blocks.{n}.")
            mix = partial(mixed, mixer, inside(own, "mixer."), **mask)
            x = block(own, x, {"mixer_norm": mix}, activation, norm_first=config.norm_first)
    else:
        x_1 = x_2 = x
        for n, mixer in enumerate(mixers):
            own = inside(params, f"blocks.blocks.{n}.")
            x_1 = x_1 + mixed(mixer, inside(own, "f.mixer."), norm(own, "f.norm", x_2), **mask)
            x_2 = x_2 + feed(inside(own, "g.1."), norm(own, "g.0", x_1), activation)
        x = (x_1 + x_2) / 2 if config.residual == "reversible_mean" else torch.cat([x_1, x_2], -1)
    return norm(params, "norm", x) if config.norm_first else x


def decoded(params: Params, model: nn.Module, x: Tensor, context: Tensor) -> Tensor:
    config, decoder = model.config, model.decoder
    pairs = zip(decoder.self_mixers, decoder.cross_mixers, strict=True)
    for n, (self_mixer, cross_mixer) in enumerate(pairs):
        own = inside(params, f"blocks.{n}.")
        mixes = {
            "self_norm": partial(mixed, self_mixer, inside(own, "self_mixer."), causal=True),
            "cross_norm": partial(mixed, cross_mixer, inside(own, "cross_mixer."), context=context),
        }
        activation = ACTIVATIONS[config.feed_forward]
        x = block(own, x, mixes, activation, norm_first=config.norm_first)
    return norm(params, "norm", x) if config.norm_first else x


def block(
    params: Params, x: Tensor, mixes: dict[str, Function], activation: Function, *, norm_first: bool
) -> Tensor:
    """What mixes tokens, each under the name of its norm; then the feed-forward layer, if there is one."""
    parts, fed = dict(mixes), inside(params, "feed_forward.")
    if fed:
        parts["feed_forward_norm"] = partial(feed, fed, activation=activation)
    for name, part in parts.items():
        x = x + part(norm(params, name, x)) if norm_first else norm(params, name, x + part(x))
    return x


def feed(params: Params, x: Tensor, activation: Function) -> Tensor:
    params = inside(params, "layer.") or params  # of a layer in chunks
    hidden = activation(linear(x, params["value.weight"], params.get("value.bias")))
    return linear(hidden, params["out.weight"], params.get("out.bias"))


def norm(params: Params, name: str, x: Tensor) -> Tensor:
    if f"{name}.gain" in params:
        return params[f"{name}.gain"] * rms_norm(x, x.shape[-1:], eps=1e-5)
    return layer_norm(x, x.shape[-1:], params[f"{name}.weight"], params[f"{name}.bias"])


def inside(params: Params, prefix: str) -> Params:
    found = params.items()
    return {name.removeprefix(prefix): z for name, z in found if name.startswith(prefix)}


def relative(
    mixer: Mixer, x: Tensor, h: Tensor, sees: Callable[[int, int], bool], **plan: Tensor
) -> Tensor:
    """What Transformer-XL's oracle says of queries x [T D], the last tokens, and keys h [S D]; query i sees key j."""
    pairs = torch.tensor([[sees(i, j) for j in range(len(h))] for i in range(len(x))])
    request = {"context": h[None], "pairwise": pairs[None, None], "plan": plan}
    params = dict(mixer.named_parameters())
    y, _ = reference.transformer_xl(params, mixer.options, x[None], **request)
    return y[0]


def place(params: Params, config: StackConfig, t: int) -> Tensor:
    D = config.dim
    if config.position == "learned":
        return params["position.table"][t]
    if config.position == "axial":
        rows, columns = params["position.tables.0"], params["position.tables.1"]
        return torch.cat([rows[t // len(columns)], columns[t % len(columns)]])
    if config.position == "sinusoidal":
        angles = [t / 10000 ** (2 * (c // 2) / D) for c in range(D)]
        waves = [math.cos(a) if c % 2 else math.sin(a) for c, a in enumerate(angles)]
        return torch.tensor(waves, dtype=torch.float64)
    assert config.position in ("none", "rotary")
    return torch.zeros(D, dtype=torch.float64)
