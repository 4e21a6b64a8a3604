"""Regard's own models in the format of Transformers: save_pretrained, from_pretrained, Auto classes, Trainer, generate.

    model = regard.hf.wrap(LanguageModelConfig(vocab_size=100, mixer="performer"))        or of a model that exists
    model = regard.hf.convert(LlamaForCausalLM.from_pretrained("llama"), "linear")       or with other mixers
    Trainer(model, arguments, train_dataset=rows, callbacks=[regard.hf.AfterStep()]).train()
    model.save_pretrained("folder");   AutoModelForCausalLM.from_pretrained("folder")     after regard.hf.register()

A folder holds config.json and safetensors, and no code: Regard must be installed where it is read.
"""

from typing import Any, ClassVar, NoReturn

import torch
from jaxtyping import Int
from torch import Tensor, nn
from transformers import (
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    GenerationMixin,
    PreTrainedModel,
)
from transformers.modeling_outputs import (
    CausalLMOutputWithPast,
    MaskedLMOutput,
    ModelOutput,
    SequenceClassifierOutput,
)
from transformers.utils import can_return_tuple

from regard.core import (
    Count,
    OptionError,
    ShapeError,
    StoredDataError,
    UnsupportedError,
    checked,
    existing,
    marks,
    shown,
    tuples,
)
from regard.hf.config import STACK, RegardConfig
from regard.hf.load import described, restored
from regard.hf.masks import FOLLOWS, PACKING, documents, predicted
from regard.hf.stack import Stack
from regard.hf.states import StateCache
from regard.models.classifier import ClassifierConfig
from regard.models.config import ModelConfig
from regard.models.language_model import LanguageModelConfig
from regard.models.masked_language_model import MaskedLanguageModelConfig
from regard.models.tokens import Numbers, Tokens, Valid, places

ITEMS = "num_items_in_batch"  # labels that Trainer counted
Position = Int[Tensor, "b T"] | None
Others = dict[str, Any]  # further arguments of a call, by name


class RegardModel(PreTrainedModel):
    """A model of Regard behind the call of Transformers: `inside` is the model, whose weights are stored as they are."""

    config_class = RegardConfig
    base_model_prefix = "inside"
    main_input_name = "input_ids"
    _keep_in_fp32_modules_strict = ["centroids.sums", "centroids.counts"]
    kind: ClassVar[type[ModelConfig]]
    output: ClassVar[type[ModelOutput]]
    auto: ClassVar[Any]
    """The class of Transformers that opens its folders."""

    def __init__(self, config: RegardConfig, inside: nn.Module | None = None):
        super().__init__(config)
        self.inside: Any = _built(config) if inside is None else inside
        if wrapper_of(self.inside, config.model) is not type(self):
            raise OptionError(
                f"{type(self).__name__} takes a {self.kind.name}, got a {config.model}"
            )
        classes = config.settings.get("num_classes")
        if classes is not None and config.num_labels != classes:
            raise OptionError(
                f"{type(self).__name__}: it has {classes} classes, got num_labels={config.num_labels}"
            )
        if config.model == STACK:
            weights = dict(self.named_parameters(remove_duplicate=False))
            table = weights.pop(word := "inside.embedding.word.weight")
            self._tied_weights_keys = {name: word for name, z in weights.items() if z is table}
            config.tie_word_embeddings = bool(self._tied_weights_keys)
        self.post_init()

    @classmethod
    def from_pretrained(cls, *args: Any, output_loading_info: bool = False, **others: Any) -> Any:
        """Transformers', but that a folder which lacks tensors is refused: nothing would start them."""
        found: Any = super().from_pretrained(*args, output_loading_info=True, **others)
        if missing := sorted(found[1]["missing_keys"]):
            raise StoredDataError(f"{cls.__name__}: the folder lacks {', '.join(missing[:3])}")
        return found if output_loading_info else found[0]

    def get_input_embeddings(self) -> nn.Module:
        return getattr(self.inside, "encoder", self.inside).embedding.table

    def resize_token_embeddings(self, *_: Any, **__: Any) -> NoReturn:
        raise UnsupportedError(
            f"{type(self).__name__} does not support resize_token_embeddings: vocab_size is the configuration's"
        )

    def _init_weights(self, module: nn.Module) -> None:
        """The model inside has started its own weights."""

    @can_return_tuple
    @checked
    def forward(
        self,
        input_ids: Tokens,
        attention_mask: Tensor | None = None,
        position_ids: Position = None,
        labels: Tensor | None = None,
        **others: Any,
    ) -> Any:
        """Logits, and the loss where there are labels; `num_items_in_batch` counts those of all batches whose gradients are accumulated.

        Positions that restart, offsets `cu_seq_lens_q` and `seq_idx` divide rows into documents, each as if alone. Other
        arguments than those that say nothing are refused.
        """
        y, _ = self._run(input_ids, attention_mask, position_ids, others)
        return self._output(y, labels, others)

    def _run(
        self, ids: Tokens, attention_mask: Tensor | None, position: Position, others: Others
    ) -> tuple[Tensor, Numbers]:
        """What the model inside gives, and the numbers of documents."""
        valid = None if attention_mask is None else marks("attention_mask", attention_mask)
        numbers = self._documents(ids, valid, position, others)
        if numbers is None:
            return self.inside(ids, valid=valid), None
        if self.kind is ClassifierConfig:
            raise UnsupportedError(
                f"{type(self).__name__} does not support documents in a row: it gives one answer for each row"
            )
        return self.inside(ids, valid=valid, documents=numbers), numbers

    def _documents(
        self,
        ids: Tensor,
        valid: Valid,
        position: Tensor | None,
        others: Others,
        after: Tensor | int = 0,
    ) -> Numbers:
        """The numbers of documents. after: tokens that came before in each row.

        Raises UnsupportedError for arguments that are not known, and for positions unlike those that the model inside counts.
        """
        who = type(self).__name__
        asked = {name: getattr(self.config, name) for name in OUTPUTS} | others
        for name, value in asked.items():
            if name not in _SILENT and value is not None and value is not False:
                raise UnsupportedError(f"{who} does not support {name}")
        numbers = documents(who, ids.shape, valid, {**others, "position_ids": position})
        if position is not None:
            wrong = position != places(position, valid, numbers) + after
            if (wrong if valid is None else wrong & valid).any():
                raise UnsupportedError(
                    f"{who} does not support position_ids other than 0, 1, 2, ... in each document, going on behind "
                    "past_key_values: it counts tokens itself"
                )
        return numbers

    def _output(self, y: Tensor, labels: Tensor | None, others: Others, **more: Any) -> Any:
        """y: logits, or the hidden tokens of a stack."""
        head = self.inside.head if isinstance(self.inside, Stack) else None
        logits, loss = y if head is None else head(y), None
        items = others.get(ITEMS)
        if labels is not None:
            try:
                loss = self.loss_function(
                    logits=logits,
                    pooled_logits=logits,
                    labels=labels,
                    vocab_size=logits.shape[-1],
                    config=self.config,
                    num_items_in_batch=items,
                )
                if items is not None and self.config.problem_type in _UNCOUNTED:
                    loss = loss * labels.numel() / items
            except (TypeError, ValueError, IndexError, RuntimeError) as error:
                if isinstance(error, torch.OutOfMemoryError):
                    raise
                raise ShapeError(
                    f"{type(self).__name__}: labels ({shown(labels)}) do not fit logits {list(logits.shape)}: {error}"
                ) from error
        return self.output(loss=loss, logits=logits, **more)


_UNCOUNTED = ("regression", "multi_label_classification")  # losses that are means of the batch
_SILENT = {"use_cache", "cache_position", "logits_to_keep", ITEMS, *PACKING, *FOLLOWS}
"""Arguments of Transformers' loops that change no output here, or that are read elsewhere."""

OUTPUTS = ("output_attentions", "output_hidden_states")
"""What a config may ask for in the place of a call."""

CACHE = "cache" if hasattr(CausalLMOutputWithPast, "cache") else "past_key_values"
"""What Transformers calls a cache, from 5.24 on and before."""


class RegardForCausalLM(RegardModel, GenerationMixin):
    """`generate` streams at the mechanism's own cost where it can, and else computes the whole sequence for each token."""

    kind = LanguageModelConfig
    output = CausalLMOutputWithPast
    auto = AutoModelForCausalLM

    def post_init(self):
        super().post_init()
        self.generation_config.use_cache = self.streams

    @property
    def streams(self) -> bool:
        """True if every mixer goes on from a state as it computes."""
        return all(mixer.capabilities.streaming == "exact" for mixer in self.inside.streamed)

    @can_return_tuple
    @checked
    def forward(
        self,
        input_ids: Tokens,
        attention_mask: Tensor | None = None,
        position_ids: Position = None,
        past_key_values: StateCache | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: Count | Int[Tensor, "n"] = 0,
        cache: StateCache | None = None,
        **others: Any,
    ) -> Any:
        """See RegardModel. With a StateCache, or `use_cache=True`, tokens follow those of the cache, which Transformers calls `cache` from 5.24 on."""
        if cache is not None and past_key_values is not None:
            raise OptionError(f"{type(self).__name__} takes one of past_key_values and cache")
        cache = past_key_values if cache is None else cache
        cache = StateCache() if cache is None and use_cache else cache
        numbers = None
        if cache is None:
            y, numbers = self._run(input_ids, attention_mask, position_ids, others)
        else:
            y = self._extend(cache, input_ids, attention_mask, position_ids, others)
        known = numbers is not None or attention_mask is not None
        if known and labels is not None and labels.shape == input_ids.shape:
            valid = None if attention_mask is None else attention_mask[:, -y.shape[1] :] == 1
            counted = (labels[:, 1:] != -100).sum().clamp_min(1)
            labels = predicted(labels, existing(input_ids, valid), numbers)
            if (items := others.get(ITEMS)) is not None:  # some of which nothing predicts
                others[ITEMS] = items * (labels[:, 1:] != -100).sum() / counted
        keep = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        N = y.shape[1]
        if isinstance(keep, Tensor) and not ((keep >= -N) & (keep < N)).all():
            raise ShapeError(f"{type(self).__name__}: logits_to_keep must name some of {N} tokens")
        return self._output(y[:, keep], labels, others, **{CACHE: cache})

    def _extend(
        self,
        cache: StateCache,
        ids: Tensor,
        attention_mask: Tensor | None,
        position: Tensor | None,
        others: Others,
    ) -> Tensor:
        who = type(self).__name__
        N = ids.shape[1]
        valid, lengths = None, cache.lengths(len(ids))
        if attention_mask is not None:
            if attention_mask.ndim != 2 or attention_mask.shape[1] not in (N, cache.columns + N):
                raise ShapeError(
                    f"{who}: attention_mask must be of {N} new tokens, or of {cache.columns} before them too, got "
                    f"{list(attention_mask.shape)}"
                )
            every = marks("attention_mask", attention_mask)
            valid, before = every[:, -N:], every[:, :-N].sum(1, keepdim=True)
            if not valid.is_meta:
                if every.shape[1] > N and (before != lengths).any():
                    raise UnsupportedError(
                        f"{who} does not support an attention_mask that hides other earlier tokens than the call that read "
                        "them: a state holds what it has read. Give the same mask to every call."
                    )
                valid = None if valid.all() else valid
        if self._documents(ids, valid, position, others, lengths) is not None:
            raise UnsupportedError(
                f"{who} does not support documents in a row beside past_key_values. Pass use_cache=False."
            )
        return cache.extend(self.inside, ids, valid)

    def _prepare_cache_for_generation(self, generation_config, model_kwargs, *others):
        if not generation_config.use_cache or model_kwargs.get(CACHE) is not None:
            more = generation_config, model_kwargs, *others
            return super()._prepare_cache_for_generation(*more)  # type: ignore[misc]
        if generation_config.cache_implementation is not None:
            raise UnsupportedError(
                f"{type(self).__name__} does not support cache_implementation={generation_config.cache_implementation!r}: "
                "its states are its own"
            )
        if not self.streams:
            generation_config.use_cache = False
            return None
        model_kwargs[CACHE] = StateCache()
        if generation_config.is_assistant:
            model_kwargs[CACHE].activate_past_recording()
        return None


class RegardForMaskedLM(RegardModel):
    kind = MaskedLanguageModelConfig
    output = MaskedLMOutput
    auto = AutoModelForMaskedLM


class RegardForSequenceClassification(RegardModel):
    kind = ClassifierConfig
    output = SequenceClassifierOutput
    auto = AutoModelForSequenceClassification


WRAPPERS = {
    cls.kind.name: cls
    for cls in (RegardForCausalLM, RegardForMaskedLM, RegardForSequenceClassification)
}
"""Name of a model -> its class for Transformers."""


def wrapper_of(inside: nn.Module, name: str) -> type[RegardModel] | None:
    """The class for a model of this name, or for a stack with the head of a language model."""
    if not isinstance(inside, Stack):
        return WRAPPERS.get(name)
    return (
        None if inside.head is None else RegardForCausalLM if inside.causal else RegardForMaskedLM
    )


def _built(config: RegardConfig) -> nn.Module:
    """A new model of this configuration."""
    if config.model == STACK:
        with described("saved stack"):
            return restored(config.settings).to(torch.get_default_dtype())
    if config.model not in WRAPPERS:
        raise OptionError(
            f"RegardConfig: model ({config.model!r}) must be one of {', '.join(WRAPPERS)}"
        )
    return WRAPPERS[config.model].kind(**tuples(config.settings)).build()
