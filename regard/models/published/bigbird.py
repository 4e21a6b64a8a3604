"""BigBird: window, global and random blocks (Zaheer et al. 2020, arXiv 2007.14062).

base, large: encoders of RoBERTa's sizes for 4,096 tokens, the internal form (ITC): blocks of 64, the first and the last
global, three random ones, so that a query sees 8 blocks. small: for small machines, blocks of 16 and one random one.

Unlike the paper: attention has no biases, gelu is exact; the blocks of padded rows as the mixer `bigbird` says. The form
with external tokens (ETC) is `mixer_options` {"num_external": ..., "global_blocks": False}.
"""

from regard.models.published.stack import BERT_BASE, BERT_LARGE, SMALL, Published, mixed

_BLOCKS = {"max_len": 4096, **mixed("bigbird", block_size=64, num_random=3)}

bigbird = Published(
    "bigbird",
    __doc__,
    heads=("masked_language_model", "classifier", "language_model"),
    presets={
        "base": BERT_BASE | _BLOCKS,
        "large": BERT_LARGE | _BLOCKS,
        "small": SMALL | mixed("bigbird", block_size=16, num_random=1),
    },
)
