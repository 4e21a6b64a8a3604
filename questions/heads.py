"""How many heads does it take, must they be learned, and may keys be made of queries?

regard arena questions.heads:QUESTION --rows docs/findings/rows/heads.jsonl

About 17 core-minutes, estimated: 120 runs of 7.5 s, and a sixth more where rates are widened.
"""

from typing import Any

import torch.nn.functional as F

from regard.lab import Claim, Column, Entry, Question, Shell, below, near
from regard.lab.tasks import StdlibBytes
from regard.lab.train import TrainConfig
from regard.models import LanguageModel, LanguageModelConfig


class NonlinearValuesConfig(LanguageModelConfig):
    """The model whose values pass a GELU."""

    name = "nonlinear_values"

    def build(self) -> LanguageModel:
        model = super().build()
        for mixer in model.encoder.mixers:
            mixer.heads.value.register_forward_hook(lambda linear, given, v: F.gelu(v))
        return model


def _nonlinear(column: Column) -> NonlinearValuesConfig:
    task, shell = column.task, column.shell
    sizes: Any = dict(dim=shell.dim, num_heads=shell.num_heads, num_layers=shell.num_layers)
    return NonlinearValuesConfig(
        max_len=task.max_len, position=shell.position, **sizes, **task.facts
    )


def _heads(count: int) -> Entry:
    return Entry(
        mixer="softmax",
        title=f"softmax, {count} head{'s' * (count > 1)}",
        model={"num_heads": count},
    )


VASWANI = "Vaswani et al. 2017, arXiv 1706.03762"
TRAIN = TrainConfig(tokens=300_000, batch_size=16, eval_every=100, checkpoint_every=10_000, keep=1)
COLUMN = Column(
    name="next byte", task=StdlibBytes(length=64, valid_size=128, test_size=512), train=TRAIN
)
SHELLS = (Shell(position="sinusoidal"), Shell(position="learned"))

# fmt: off
QUESTION = Question(
    name="heads",
    about="How many heads does it take, and which of their parts must be learned, on bytes of Python?",
    kind="comparison",
    entries=(
        Entry(mixer="softmax"),
        *map(_heads, (1, 2, 8)),
        Entry(mixer="softmax", title="keys of queries", options={"shared_qk": True}),
        Entry(make=_nonlinear, title="values through a GELU"),
        Entry(mixer="fixed_patterns", title="three fixed heads", options={"patterns": ("current", "previous", "left")}),
        Entry(mixer="synthesizer_random", title="four tables"),
    ),
    vary=(COLUMN,),
    shells=SHELLS,
    rates=(2e-3, 4e-3, 8e-3),
    factors=("num_heads",),
    claims=(
        Claim(
            text="Several heads are better than one.", source=f"{VASWANI}: 25.5 BLEU with 4, 24.9 with 1",
            smallest=0.02, expected=(below("softmax", "softmax, 1 head"),),
        ),
        Claim(
            text="Past a few heads more of them gain nothing: 4 and 8 are within 0.03 bits.", source=f"{VASWANI}: 25.5 BLEU with 4, 25.8 with 8 and 16, 25.4 with 32",
            smallest=0.02, expected=(near("softmax, 8 heads", "softmax", within=0.03),),
        ),
        Claim(
            text="Keys made from queries cost nothing: at most 0.03 bits.", source="Kitaev et al. 2020, arXiv 2001.04451",
            smallest=0.02, expected=(below("keys of queries", "softmax", by=-0.03),),
        ),
        Claim(
            text="Three of four heads may be fixed patterns at no loss: of at most 0.03 bits.", source="Raganato et al. 2020, arXiv 2002.10260, of seven of eight heads in an encoder",
            smallest=0.02, expected=(below("three fixed heads", "softmax", by=-0.03),),
        ),
        Claim(
            text="Random patterns, learned for no token in particular, come near: at most 0.1 bits worse.", source="Tay et al. 2020, arXiv 2005.00743",
            smallest=0.02, expected=(below("four tables", "softmax", by=-0.1),),
        ),
        Claim(
            text="Values need no more than a linear map: a GELU gains 0.02 bits at most.", source="ours: all papers have a linear map",
            smallest=0.01, expected=(below("softmax", "values through a GELU", by=-0.02),),
        ),
    ),
    limits=(
        "Two layers of width 64 and 300,000 bytes: heads of 64 to 8 channels. More heads are narrower ones, as in the paper's rows.",
        "The fixed heads look back (itself, the byte before, all before by a falling weight), and the stack is causal, where the paper's is an encoder of words.",
        "Fixed heads and keys of queries have fewer matrices: their feed-forward layers are wider for it, which is a part of what is compared.",
        "The fixed heads know places by themselves; all others only by what is added, so that fixed ones may win by the byte before.",
    ),
)
