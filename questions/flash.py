"""Do gated attention units beat softmax with a gated feed-forward layer, and what is FLASH's quality at equal time?

regard arena questions.flash:QUESTION --rows docs/findings/rows/flash.jsonl

About 24 core-minutes, estimated: 144 runs of 8.5 s, and a sixth more where rates are widened.
"""

from regard.lab import Claim, Column, Entry, Question, Setting, Shell, above, below, near
from regard.lab.tasks import StdlibBytes
from regard.lab.train import TrainConfig

HUA = "Hua et al. 2022, arXiv 2202.10447"
GLU = {"feed_forward": "swiglu"}
PLAIN = {"relative_bias": None, "key_dim": 32}
TRAIN = TrainConfig(tokens=300_000, batch_size=16, eval_every=100, checkpoint_every=10_000, keep=1)
SHELLS = tuple(Shell(position=position, fields=GLU) for position in ("sinusoidal", "learned"))
FLASH = PLAIN | {"chunk_size": 16}

# fmt: off
QUESTION = Question(
    name="flash",
    about="Do gated units beat attention with a gated feed-forward layer at equal positions and parameters, and at equal time?",
    kind="comparison",
    entries=(
        Entry(mixer="softmax", title="softmax and GLU"),
        Entry(mixer="softmax", title="softmax and feed-forward", model={"feed_forward": "gelu"}),
        Entry(mixer="softmax", title="softmax and GLU, one head", model={"num_heads": 1}),
        Entry(mixer="softmax", title="softmax and GLU, rotary", model={"position": "rotary"}),
        Entry(mixer="gau", title="GAU", options=PLAIN),
        Entry(mixer="gau", title="GAU, rotary", options={"key_dim": 32}, model={"position": "none"}),
        Entry(mixer="flash", title="FLASH", options=FLASH),
        Entry(mixer="flash", title="FLASH, local part", options=FLASH | {"parts": "local"}),
        Entry(mixer="flash", title="FLASH, global part", options=FLASH | {"parts": "global"}),
        Entry(mixer="mixed_chunk", title="mixed chunk and GLU", options={"chunk_size": 16}),
    ),
    vary=(
        Column(name="next byte", task=StdlibBytes(length=64, valid_size=128, test_size=512), train=TRAIN),
        *(
            Setting(kind="forward", length=length, unit="block", seconds=5.0) for length in (512, 2048, 8192)
        ),
    ),
    shells=SHELLS,
    rates=(2e-3, 4e-3, 8e-3),
    baseline="softmax and GLU",
    factors=("feed_forward", "num_heads"),
    claims=(
        Claim(text="GAU is better than attention and feed-forward layer.", source=HUA, smallest=0.02, expected=(below("GAU", "softmax and feed-forward"),)),
        Claim(
            text="GAU is better than attention and GLU.", source=HUA, smallest=0.02,
            expected=(below("GAU", "softmax and GLU"), below("GAU, rotary", "softmax and GLU, rotary")),
        ),
        Claim(text="One head is enough with a gate: it is behind several without.", source=HUA, smallest=0.02, expected=(above("softmax and GLU, one head", "GAU"),)),
        Claim(text="FLASH is as good as FLASH-Quad, within 0.05 bits.", source=HUA, smallest=0.02, expected=(near("FLASH", "GAU", within=0.05),)),
        Claim(
            text="Both parts of FLASH are needed, and the local one more.", source=HUA, smallest=0.02,
            expected=(above("FLASH, local part", "FLASH"), above("FLASH, global part", "FLASH, local part")),
        ),
        Claim(
            text="The gate is what lets a mixed chunk approximate: without it, it is worse.", source=HUA, smallest=0.02,
            expected=(above("mixed chunk and GLU", "FLASH"),),
        ),
    ),
    limits=(
        "Two layers of width 64, windows of 64 bytes in chunks of 16. The paper compares at 110 million parameters, where a gate has more to gate.",
        "GAU's usual positions are rotary inside; it stands beside softmax with rotary ones, and FLASH and the mixed chunk, which has none, beside all with added ones.",
        "Quality at equal time is read off the curves, at 64 tokens. That FLASH is faster when long is in the times, on which a claim has no bounds: 512, 2,048 and 8,192 tokens.",
        "Masked bytes are not asked: after 300,000 of them softmax is 0.04 bits better than the bag, too little for a difference.",
    ),
)
