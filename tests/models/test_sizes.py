"""Published models have as many parameters as published."""

import pytest
import torch

import regard.models as m
from regard.models import count_parameters
from tests.models.small import STACK

BASE = m.transformer_base(33708, max_len=256)
MILLIONS = count_parameters(BASE) / 1e6


def masked(entry, preset, vocab_size=32000):
    return entry(preset, head="masked_language_model", vocab_size=vocab_size)


def generator(entry, preset, vocab_size):
    return entry(preset, head="language_model", vocab_size=vocab_size)


def image(entry, preset):
    return entry(preset, image_size=(224, 224), channels=3, num_classes=1000)


def synthesizer(preset):
    return m.synthesizer(preset, head="transformer", vocab_size=BASE.vocab_size)


def transformer(D):
    """Six layers, the embedding shared; matrices, biases of the feed-forward layers, norms."""
    feed_forward = 2 * 4 * D**2 + 5 * D
    encoder, decoder = 4 * D**2 + feed_forward + 4 * D, 8 * D**2 + feed_forward + 6 * D
    return (37_000 * D + 6 * (encoder + decoder)) / 1e6


ROWS = [  # configuration, published millions, tolerance, numbers that the papers count and ours lack
    (m.transformer_base(), transformer(512), 0, 0),
    (m.transformer_base(), 65, 0.035, 0),
    (m.transformer_big(), transformer(1024), 0, 0),
    (m.transformer_big(), 213, 0.01, 0),
    (m.xlnet_base(), 116.718336, 0, -32_000),  # released without their output biases
    (m.xlnet_large(), 360.2688, 0, -32_000),
    (m.transformer_xl_wikitext_base(), 151, 0.0033, 0),
    (m.transformer_xl_enwik8_base(), 41, 0.012, 0),
    (m.transformer_xl_enwik8_large(), 277, 0.0018, 0),
    (generator(m.llama3, "8b", 128256), 8030, 0.001, 0),
    (generator(m.qwen3, "0.6b", 151936), 596, 0.001, 0),
    (generator(m.qwen3, "8b", 151936), 8191, 0.001, 0),
    (generator(m.gemma3, "270m", 262144), 268, 0.001, 0),
    (generator(m.gemma3, "1b", 262144), 1000, 0.001, 0),
    (generator(m.mamba2, "130m", 50288), 129, 0.005, 0),
    (generator(m.mamba2, "2.7b", 50288), 2702, 0.002, 0),
    (m.retnet("1.3b", vocab_size=1), 12 * 24 * 2048**2 / 1e6, 0.001, 0),  # of the layers
    (m.retnet("6.7b", vocab_size=1), 12 * 32 * 4096**2 / 1e6, 0.001, 0),
    (masked(m.longformer, "base", 50265), 148.7, 0.007, 0),
    (masked(m.longformer, "large", 50265), 434.6, 0.007, 0),
    (masked(m.fnet, "base"), 83, 0.007, 768**2),  # the projection after the embeddings
    (masked(m.fnet, "large"), 238, 0.007, 1024**2),
    (masked(m.fnet, "hybrid_base"), 88, 0.007, 768**2),
    (masked(m.fnet, "hybrid_large"), 245, 0.007, 1024**2),
    (masked(m.gmlp, "base"), 130, 0.007, 0),
    (masked(m.gmlp, "large"), 365, 0.007, 0),
    (masked(m.gmlp, "xlarge"), 941, 0.007, 0),
    (masked(m.gmlp, "amlp_base"), 109, 0.007, 0),
    (masked(m.gmlp, "amlp_large"), 316, 0.007, 0),
    (generator(m.reformer, "enwik8", 258), 149, 0.007, 0),
    (masked(m.flash_quad, "base"), 112, 0.007, 0),
    (masked(m.flash, "base"), 112, 0.007, 0),
    (image(m.mlp_mixer, "s_16"), 18, 0.007, -1001 * 512),  # without the head
    (image(m.mlp_mixer, "b_16"), 59, 0.007, -1001 * 768),
    (image(m.mlp_mixer, "l_16"), 207, 0.007, -1001 * 1024),
    (image(m.mlp_mixer, "h_14"), 431, 0.007, -1001 * 1280),
    (image(m.gmlp_image, "ti_16"), 5.9, 0.007, 0),
    (image(m.gmlp_image, "s_16"), 19.5, 0.007, 0),
    (image(m.gmlp_image, "b_16"), 73, 0.007, 0),
    # relative positions have a matrix in each layer
    (generator(m.longformer, "character_small", 256), 41, 0.01, 12 * 512**2),
    (generator(m.longformer, "character_large", 256), 102, 0.01, 30 * 512**2),
    # the Transformer and a learned table; 6 million fewer fixed or factorised, 6 more with the dot product
    (synthesizer("random"), MILLIONS, 0.006, 0),
    (synthesizer("fixed"), MILLIONS - 6, 0.006, 0),
    (synthesizer("factorized_random"), MILLIONS - 6, 0.006, 0),
    (synthesizer("random_vanilla"), MILLIONS + 6, 0.005, 0),
]


@pytest.mark.parametrize("config, millions, tolerance, lacking", ROWS)
def test_parameters_are_as_many_as_published(config, millions, tolerance, lacking):
    found = (count_parameters(config) + lacking) / 1e6
    assert found == pytest.approx(millions, rel=tolerance or 1e-12)


def test_counting_leaves_the_random_generator_alone():
    before = torch.get_rng_state()
    count_parameters(m.LanguageModelConfig(**STACK))
    assert torch.equal(torch.get_rng_state(), before)
