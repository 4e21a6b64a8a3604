"""The loop with the library's own tasks and models."""

import pytest

from regard.lab.tasks import Digits, StdlibBytes
from regard.lab.train import TrainConfig, fit
from regard.models import Classifier, ClassifierConfig, LanguageModel, LanguageModelConfig

SIZES = {"dim": 24, "num_heads": 3, "num_layers": 1, "dropout": 0.1}
CONFIG = TrainConfig(
    steps=40, batch_size=16, lr=1e-2, eval_every=20, checkpoint_every=10, log_dir=None
)


@pytest.mark.parametrize("mixer", ["softmax", "linear"])
def test_digits(tmp_path, mixer):
    task = Digits()
    sizes = SIZES | {
        "vocab_size": task.vocab_size,
        "num_classes": task.num_classes,
        "max_len": task.max_len,
    }
    model = Classifier(ClassifierConfig(mixer=mixer, **sizes))
    result = fit(model, task, CONFIG, tmp_path, progress=False)
    assert result.value > task.trivial_baseline()
    assert fit(model, task, CONFIG, tmp_path, progress=False) == result


def test_bytes(tmp_path):
    task = StdlibBytes(length=64, valid_size=16, test_size=16)
    splits = task.load()
    model = LanguageModel(
        LanguageModelConfig(vocab_size=task.vocab_size, max_len=task.max_len, **SIZES)
    )
    result = fit(model, task, CONFIG, tmp_path, splits=splits, progress=False)
    assert result.value < task.trivial_baseline(splits)
    assert result.tokens == 40 * 16 * 64
    assert result.data_sha256 == splits.sha256
    assert fit(model, task, CONFIG, tmp_path, splits=splits, progress=False) == result
