"""Whole stacks written anew: one row at a time, valid tokens alone, norms and heads by hand, mixers by their oracles."""

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import batch_norm, conv2d, gelu, layer_norm, linear

from regard import Mask, Mixer, reference
from regard.models import StackConfig

Params = dict[str, Tensor]


def stack_oracle(model: nn.Module, tokens: Tensor) -> Tensor:
    """What the model says of one row [T] without padding; gradients reach the model's own parameters."""
    params = dict(model.named_parameters()) | dict(model.named_buffers())
    head, config = model.config.name, model.config
    if head == "patch_classifier":
        hidden = through(params, config, model.mixers, patches(params, config, tokens), False)
    else:
        hidden = encoded(params, config, model.encoder.mixers, tokens, head == "language_model")
    if head.endswith("classifier"):
        return linear(hidden.mean(0), params["head.weight"], params["head.bias"])
    table = params["encoder.embedding.table.weight"]
    if head == "language_model":
        if "own_logits.weight" in params:
            return linear(hidden, params["own_logits.weight"], params["own_logits.bias"])
        return hidden @ table.T
    turned = gelu(linear(hidden, params["transform.weight"], params["transform.bias"]))
    return norm(params, "norm", turned) @ table.T + params["bias"]


def encoded(
    params: Params, config: StackConfig, mixers: list[Mixer], tokens: Tensor, causal: bool
) -> Tensor:
    D, params = config.dim, inside(params, "encoder.")
    table = params["embedding.table.weight"]
    rows = [
        math.sqrt(D) * table[int(token)] + place(params, config, t)
        for t, token in enumerate(tokens)
    ]
    x = torch.stack(rows)
    if config.embedding_norm:
        x = norm(params, "embedding.norm", x)
    return through(params, config, mixers, x, causal)


def patches(params: Params, config: StackConfig, levels: Tensor) -> Tensor:
    p, levels = config.patch_size, levels.view(config.channels, *config.image_size)
    picture = levels.double() * (2 / (config.vocab_size - 1)) - 1
    for n, (_, stride) in enumerate(config.stem):
        x = conv2d(picture[None], params[f"stem.{3 * n}.weight"], stride=stride, padding=1)
        own = inside(params, f"stem.{3 * n + 1}.")
        x = batch_norm(x, own["running_mean"], own["running_var"], own["weight"], own["bias"])
        picture, p = x[0].relu(), p // stride
    C, height, width = picture.shape
    rows = []
    for y in range(0, height, p):
        for x in range(0, width, p):
            near = [(y + dy, x + dx) for dy in range(p) for dx in range(p)]
            cells = [picture[c, i, j] for i, j in near for c in range(C)]
            rows.append(params["project.weight"] @ torch.stack(cells))
    return torch.stack(rows) + params["project.bias"]


def through(
    params: Params, config: StackConfig, mixers: list[Mixer], x: Tensor, causal: bool
) -> Tensor:
    """The blocks, and the norm after the last."""
    T = len(x)
    marks = torch.tensor([[t < config.global_tokens for t in range(T)]])

    def mixed(mixer: Mixer, own: Params, x: Tensor) -> Tensor:
        mask = Mask(causal=causal, global_tokens=marks if config.global_tokens else None)
        y, _ = getattr(reference, mixer.name)(
            own,
            mixer.options,
            x[None],
            causal=causal,
            global_tokens=mask.global_tokens,
            plan=mixer.plan(x[None], context=None, mask=mask),
        )
        return y[0]

    activation = gelu if config.feed_forward == "gelu" else torch.relu
    if config.residual == "plain":
        for n, mixer in enumerate(mixers):
            own = inside(params, f"blocks.{n}.")
            mix = partial(mixed, mixer, inside(own, "mixer."))
            x = block(own, x, mix, activation, norm_first=config.norm_first)
    else:
        x_1 = x_2 = x
        for n, mixer in enumerate(mixers):
            own = inside(params, f"blocks.blocks.{n}.")
            f = mixed(mixer, inside(own, "f.mixer."), norm(own, "f.norm", x_2))
            x_1 = x_1 + f
            x_2 = x_2 + feed(inside(own, "g.1."), norm(own, "g.0", x_1), activation)
        x = (x_1 + x_2) / 2 if config.residual == "reversible_mean" else torch.cat([x_1, x_2], -1)
    return norm(params, "norm", x) if config.norm_first else x


Function = Callable[[Tensor], Tensor]


def block(
    params: Params, x: Tensor, mix: Function, activation: Function, *, norm_first: bool
) -> Tensor:
    fed = inside(params, "feed_forward.")
    if norm_first:
        x = x + mix(norm(params, "mixer_norm", x))
        return x + feed(fed, norm(params, "feed_forward_norm", x), activation) if fed else x
    x = norm(params, "mixer_norm", x + mix(x))
    return norm(params, "feed_forward_norm", x + feed(fed, x, activation)) if fed else x


def feed(params: Params, x: Tensor, activation: Function) -> Tensor:
    params = inside(params, "layer.") or params  # of a layer in chunks
    hidden = activation(linear(x, params["value.weight"], params.get("value.bias")))
    return linear(hidden, params["out.weight"], params.get("out.bias"))


def norm(params: Params, name: str, x: Tensor) -> Tensor:
    if f"{name}.gain" in params:
        return params[f"{name}.gain"] * x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt()
    return layer_norm(x, x.shape[-1:], params[f"{name}.weight"], params[f"{name}.bias"])


def inside(params: Params, prefix: str) -> Params:
    found = params.items()
    return {name.removeprefix(prefix): z for name, z in found if name.startswith(prefix)}


def relative(
    mixer: Mixer, x: Tensor, h: Tensor, sees: Callable[[int, int], bool], **plan: Tensor
) -> Tensor:
    """What Transformer-XL's oracle says of queries x [T D], the last tokens, and keys h [S D]; query i sees key j."""
    pairs = torch.tensor([[sees(i, j) for j in range(len(h))] for i in range(len(x))])
    params, request = dict(mixer.named_parameters()), {"pairwise": pairs[None, None]}
    y, _ = reference.transformer_xl(
        params, mixer.options, x[None], context=h[None], plan=plan, **request
    )
    return y[0]


def place(params: Params, config: StackConfig, t: int) -> Tensor:
    D = config.dim
    if config.position == "learned":
        return params["embedding.position.table"][t]
    if config.position == "axial":
        rows, columns = params["embedding.position.tables.0"], params["embedding.position.tables.1"]
        return torch.cat([rows[t // len(columns)], columns[t % len(columns)]])
    if config.position == "sinusoidal":
        angles = [t / 10000 ** (2 * (c // 2) / D) for c in range(D)]
        waves = [math.cos(a) if c % 2 else math.sin(a) for c, a in enumerate(angles)]
        return torch.tensor(waves, dtype=torch.float64)
    assert config.position == "none"
    return torch.zeros(D, dtype=torch.float64)
