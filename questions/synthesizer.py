"""Do weights need pairs of tokens, or do tables and single tokens make them as well?

regard arena questions.synthesizer:QUESTION --rows docs/findings/rows/synthesizer.jsonl

About 19 core-minutes, estimated: 132 runs of 7.5 s, and a sixth more where rates are widened.
"""

from regard.lab import Claim, Column, Entry, Question, Shell, above, below, near
from regard.lab.tasks import StdlibBytes
from regard.lab.train import TrainConfig

TAY = "Tay et al. 2020, arXiv 2005.00743"
D, R, FD, FR = (
    f"synthesizer_{one}" for one in ("dense", "random", "factorized_dense", "factorized_random")
)
TRAIN = TrainConfig(tokens=300_000, batch_size=16, eval_every=100, checkpoint_every=10_000, keep=1)

# fmt: off
QUESTION = Question(
    name="synthesizer",
    about="How near do Synthesizers come to softmax on bytes of Python, at equal positions and parameters?",
    kind="comparison",
    entries=(
        Entry(mixer="softmax"),
        Entry(mixer=D, title="dense (D)"),
        Entry(mixer=D, title="dense, one layer", options={"layers": 1}),
        Entry(mixer=R, title="random (R)"),
        Entry(mixer=R, title="random, never trained", options={"trainable": False}),
        Entry(mixer=FD, title="factorized dense"),
        Entry(mixer=FR, title="factorized random"),
        Entry(mixer="mixture", title="D + V", options={"members": (D, "softmax")}),
        Entry(mixer="mixture", title="R + V", options={"members": (R, "softmax")}),
    ),
    vary=(
        Column(name="next byte", task=StdlibBytes(length=64, valid_size=128, test_size=512), train=TRAIN),
    ),
    shells=(Shell(position="sinusoidal"), Shell(position="learned")),
    rates=(2e-3, 4e-3, 8e-3),
    claims=(
        Claim(
            text="Dense comes close to softmax in language modelling: within 0.1 bits.", source=f"{TAY} (LM1B: perplexity 40.9 against 38.2)", smallest=0.02,
            expected=(near("dense (D)", "softmax", within=0.1),),
        ),
        Claim(
            text="Random comes close to softmax in language modelling: within 0.1 bits.", source=f"{TAY} (LM1B: 40.6 against 38.2)", smallest=0.02,
            expected=(near("random (R)", "softmax", within=0.1),),
        ),
        Claim(
            text="Softmax stays ahead of both in language modelling.", source=TAY, smallest=0.02,
            expected=(above("dense (D)", "softmax"), above("random (R)", "softmax")),
        ),
        Claim(
            text="A table that is never trained is far behind one that is: more than 0.1 bits.", source=f"{TAY} (LM1B: 50.5 against 40.6)", smallest=0.02,
            expected=(above("random, never trained", "random (R)", by=0.1),),
        ),
        Claim(
            text="The same table, never trained, is much worse than softmax: more than 0.1 bits.", source=f"{TAY} (LM1B: perplexity 50.5 against 38.2)", smallest=0.02,
            expected=(above("random, never trained", "softmax", by=0.1),),
        ),
        Claim(
            text="Factors lose little: within 0.05 bits of the whole.", source=TAY, smallest=0.02,
            expected=(near("factorized dense", "dense (D)", within=0.05), near("factorized random", "random (R)", within=0.05)),
        ),
        Claim(
            text="One layer from token to weights serves as well as two: within 0.05 bits.", source="a survey article, which gives the dense form so", smallest=0.02,
            expected=(near("dense, one layer", "dense (D)", within=0.05),),
        ),
        Claim(text="Dense blended with softmax beats softmax.", source=f"{TAY} (LM1B: 37.3 against 38.2)", smallest=0.01, expected=(below("D + V", "softmax"),)),
        Claim(
            text="Random blended with softmax is no better than softmax in language modelling.", source=f"{TAY} (LM1B: 40.1 against 38.2)", smallest=0.01,
            expected=(above("R + V", "softmax", by=-0.01),),
        ),
    ),
    limits=(
        "Two layers of width 64, windows of 64 bytes, 300,000 bytes: 0.1 bits here are no 2.7 points of perplexity on LM1B.",
        "A table of 64 places knows distance by place. Softmax has only the positions that are added, and so has every entry; rotary ones would help softmax alone, and are in questions.flash.",
        "Parameters are equal by the feed-forward layer: a table or a dense head for each place takes them from there, which shorter windows make cheaper.",
        "Translation, summaries, dialogue and GLUE are not asked; what fine-tuning shows is in questions.transfer.",
    ),
)
