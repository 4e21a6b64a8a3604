"""XLNet fine-tuned: the content stream alone, everything seen by everything (Yang et al. 2019, arXiv 1906.08237).

    one text:   A SEP CLS            two:   A SEP B SEP CLS           segments 0 for A and its SEP, 1 for B's, 2 for CLS
    logits = W tanh(V h_CLS + b) + c

SEP and CLS are learned vectors of the head's own here, not tokens of the vocabulary: the trunk may have been trained on
any tokens: `model.trunk.load_state_dict(xlnet.trunk.state_dict())`. Cost: one stream.
"""

from collections.abc import Sequence

import torch
from torch import nn

from regard.core import ShapeError, compaction, existing, permute
from regard.models.config import Logits, Model
from regard.models.generation import last_valid
from regard.models.tokens import Source, SourceValid, Tokens, Valid, check_tokens, looked_up
from regard.models.two_streams import CONTEXT, FactorizationOrder, TrunkConfig
from regard.models.xlnet import Trunk
from regard.nn.starts import unset

Text = tuple[Tokens, Valid]


class XLNetClassifierConfig(TrunkConfig):
    """XLNet's content stream and one of num_classes classes for each text."""

    name = "xlnet_classifier"
    kinds = ("classify",)

    num_classes: int


class XLNetMatcherConfig(XLNetClassifierConfig):
    """The same for a pair of texts, which are two segments of one row."""

    name = "xlnet_matcher"
    kinds = ("match",)


class SequenceClassifier(Model):
    """Texts -> logits, from the last layer's h of the CLS that closes them."""

    def __init__(self, config: XLNetClassifierConfig):
        super().__init__(config)
        self.trunk = Trunk(config)
        self.special = unset(2, config.dim)  # SEP, CLS
        self.reset_parameters()
        self.dense = nn.Linear(config.dim, config.dim)
        self.dropout = nn.Dropout(config.dropout)
        self.head = nn.Linear(config.dim, config.num_classes)

    def reset_parameters(self) -> None:
        nn.init.normal_(self.special, std=0.02)

    def summarise(self, texts: Sequence[Text]) -> Logits:
        who = self.config.name
        for tokens, valid in texts:
            check_tokens(who, tokens, valid, self.trunk.table.weight)
        B = texts[0][0].shape[0]
        separator, closing = (vector.expand(B, 1, -1) for vector in self.special)
        one = closing.new_ones(B, 1, dtype=torch.bool)
        columns = []
        here = []
        numbers = []
        for number, (tokens, valid) in enumerate(texts):
            if tokens.shape[0] != B:
                raise ShapeError(f"{who}: first has batch {B}, second {len(tokens)}")
            columns += [looked_up(self.trunk.table, tokens, valid), separator]
            here += [existing(tokens, valid), one]
            numbers += [number] * (tokens.shape[1] + 1)
        source, _, valid = compaction(torch.cat([*here, one], 1))
        h = permute(torch.cat([*columns, closing], 1), source)
        segments = source.new_tensor([*numbers, 2])[source]
        ranks = FactorizationOrder(torch.full_like(segments, CONTEXT), valid, segments)
        h, _, _ = self.trunk(h, None, ranks, self.trunk.empty(B, 0))
        return self.head(self.dropout(self.dense(last_valid(h, valid)).tanh()))


class XLNetClassifier(SequenceClassifier):
    """model(tokens [B T], valid=[B T] | None) -> logits [B num_classes]; padding changes nothing."""

    name = "xlnet_classifier"

    def forward(self, tokens: Tokens, *, valid: Valid = None) -> Logits:
        return self.summarise([(tokens, valid)])


class XLNetMatcher(SequenceClassifier):
    """model(first [B S], second [B T], first_valid=, second_valid=) -> logits [B num_classes]: a pair in one sequence."""

    name = "xlnet_matcher"

    def __init__(self, config: XLNetMatcherConfig):
        super().__init__(config)

    def forward(
        self,
        first: Source,
        second: Tokens,
        *,
        first_valid: SourceValid = None,
        second_valid: Valid = None,
    ) -> Logits:
        return self.summarise([(first, first_valid), (second, second_valid)])
