"""Fields of a checkpoint's config: each is read, refused, or named in `left`."""

from collections import UserDict
from typing import Any

from regard.core import Options

NO_READER = {
    "what is in the file": "architectures dtype id2label label2id model_type num_labels problem_type task_specific_params "
    "torch_dtype transformers_version _name_or_path",
    "what a call returns": "output_attentions output_hidden_states return_dict use_cache",
    "the same numbers in other steps": "chunk_size chunk_size_feed_forward chunk_size_lm_head gradient_checkpointing onnx_export "
    "pretraining_tp reorder_and_upcast_attn residual_in_fp32 tpu_short_seq_length",
    "ids for tokenizers and decoding": "begin_suppress_tokens bos_token_id decoder_start_token_id eos_token_id pad_token_id "
    "sep_token_id suppress_tokens",
    "how a new model starts": "initializer_factor initializer_range rescale_prenorm_residual time_step_floor "
    "time_step_max time_step_min time_step_rank",
    "experts, which are refused": "decoder_sparse_step mlp_only_layers moe_intermediate_size moe_renormalize n_group n_shared_experts "
    "norm_topk_prob num_expert_group num_experts num_experts_per_tok num_experts_per_token num_local_experts num_shared_experts "
    "output_router_logits routed_scaling_factor router_aux_loss_coef shared_expert_intermediate_size topk_group",
    "training: a loaded stack has no dropout": "attention_dropout attention_probs_dropout_prob attn_dropout attn_pdrop dropout "
    "dropout_rate embd_pdrop hidden_dropout_prob resid_pdrop",
    "classifiers, whose tensors are in `left`": "classifier_dropout summary_activation summary_first_dropout "
    "summary_proj_to_labels summary_type summary_use_proj",
    "said by other fields or tensors": "_sliding_window_pattern head_dim is_encoder_decoder max_window_layers qk_head_dim",
    "read where a model has the part": "block_size max_position_embeddings model_max_length num_decoder_layers num_random_blocks "
    "scale_decoder_outputs sliding_window tie_word_embeddings",
}
"""Reason -> fields that may stay unread, since then they change no output in evaluation."""
WITHOUT_EFFECT = frozenset(" ".join(NO_READER.values()).split())


class Fields(UserDict[str, Any]):
    """A config; `left` are the fields that nobody has read, but for those without effect."""

    def __init__(self, config: Options):
        super().__init__(config)
        self.left = set(config) - WITHOUT_EFFECT

    def __getitem__(self, name: str) -> Any:
        self.left.discard(name)
        return super().__getitem__(name)
