"""Runs of language models on bytes: causal, masked and permuted."""

from regard.lab.recipes.run import Run
from regard.lab.tasks import StdlibBytes, StdlibPermuted
from regard.lab.tasks.language_models import Enwik8, OwnText, ShakespeareBytes, Text8, Wikipedia
from regard.lab.tasks.masked import NewsgroupsMasked, SpamMasked, StdlibMasked
from regard.lab.train import TrainConfig
from regard.models import (
    LanguageModelConfig,
    MaskedLanguageModelConfig,
    TransformerXLConfig,
    XLNetConfig,
)


def stdlib_bytes() -> Run:
    """The next byte of Python's own source, 256 bytes at a time.

    Measured: 2.20 bits a byte, byte frequencies 4.56; 191 seconds of one core.
    """
    task = StdlibBytes()
    return Run(
        task=task,
        model=LanguageModelConfig(
            vocab_size=task.vocab_size, max_len=task.max_len, dim=128, num_heads=4, num_layers=2
        ),
        train=TrainConfig(steps=2000, batch_size=8, lr=2e-3, eval_every=500),
    )


def transformer_xl() -> Run:
    """The next byte of Python's own source, 256 bytes in segments of 64, each with a memory of 128."""
    task = StdlibBytes()
    return Run(
        task=task,
        model=TransformerXLConfig(
            vocab_size=task.vocab_size,
            dim=128,
            num_heads=4,
            num_layers=2,
            hidden_dim=256,
            segment_len=64,
            mem_len=128,
            norm_first=True,
        ),
        train=TrainConfig(steps=1500, batch_size=8, lr=2e-3, eval_every=150, patience=5),
    )


def shakespeare_bytes() -> Run:
    """The next byte of Shakespeare, 128 bytes at a time; whole works are held out.

    Measured: 3.68 bits a byte, byte frequencies 4.79; 15 seconds of one core.
    """
    task = ShakespeareBytes(length=128)
    return Run(
        task=task,
        model=LanguageModelConfig(
            vocab_size=task.vocab_size, max_len=task.max_len, dim=64, num_heads=4, num_layers=1
        ),
        train=TrainConfig(steps=400, batch_size=16, lr=4e-3, eval_every=200),
    )


def stdlib_masked() -> Run:
    """Hidden bytes of Python's own source, 128 bytes at a time.

    Measured: 4.05 bits a hidden byte, byte frequencies 4.54; 16 seconds of one core, about what one layer learns at first.
    """
    task = StdlibMasked(length=128)
    return Run(
        task=task,
        model=MaskedLanguageModelConfig(
            vocab_size=task.vocab_size, max_len=256, dim=64, num_heads=4, num_layers=1
        ),
        train=TrainConfig(steps=400, batch_size=16, lr=4e-3, eval_every=200),
    )


def spam_masked() -> Run:
    """Hidden bytes of e-mails: what `spam_transfer` starts from."""
    task = SpamMasked(length=256)
    return Run(
        task=task,
        model=MaskedLanguageModelConfig(
            vocab_size=task.vocab_size, max_len=task.max_len, dim=64, num_heads=4, num_layers=1
        ),
        train=TrainConfig(steps=500, batch_size=16, lr=4e-3, eval_every=250),
    )


def newsgroups_masked() -> Run:
    """Hidden bytes of newsgroup posts: what `newsgroups_transfer` starts from.

    Measured: 2.260 bits per hidden byte, byte frequencies 4.118; 66 seconds of one core.
    """
    task = NewsgroupsMasked(length=128)
    return Run(
        task=task,
        model=MaskedLanguageModelConfig(
            vocab_size=task.vocab_size,
            max_len=256,
            dim=96,
            num_heads=4,
            num_layers=1,
            mixer="local",
            mixer_options={"window_size": 3},
        ),
        train=TrainConfig(steps=1500, batch_size=16, lr=4e-3, eval_every=500),
    )


def stdlib_permuted() -> Run:
    """Bytes of Python's own source in drawn orders, 128 at a time: the model predicts one in six.

    Measured: 2.79 bits a byte, byte frequencies 4.55; 45 seconds of one core.
    """
    task = StdlibPermuted(length=128)
    return Run(
        task=task,
        model=XLNetConfig(
            vocab_size=task.vocab_size,
            dim=64,
            num_heads=4,
            num_layers=1,
            hidden_dim=128,
            num_predict=task.length // task.k,
        ),
        train=TrainConfig(steps=600, batch_size=16, lr=3e-3, eval_every=200),
    )


def xlnet() -> Run:
    """Bytes of Python's own source in drawn orders: the model predicts one in six."""
    task = StdlibPermuted(valid_size=128, test_size=256)
    return Run(
        task=task,
        model=XLNetConfig(
            vocab_size=task.vocab_size,
            dim=128,
            num_heads=4,
            num_layers=2,
            hidden_dim=256,
            num_predict=task.length // task.k,
        ),
        train=TrainConfig(steps=1500, batch_size=8, lr=1e-3, eval_every=150, patience=5),
    )


def enwik8() -> Run:
    """Wikipedia's bytes, 512 at a time."""
    return _continue(Enwik8())


def text8() -> Run:
    """Wikipedia's letters, 512 at a time."""
    return _continue(Text8())


def _continue(task: Wikipedia) -> Run:
    return Run(
        task=task,
        model=LanguageModelConfig(
            vocab_size=task.vocab_size, max_len=task.max_len, dim=512, num_heads=8, num_layers=6
        ),
        train=TrainConfig(steps=20000, batch_size=32, lr=5e-4, eval_every=1000),
    )


def own_text() -> Run:
    """The next byte of your own text file: `--task.path novel.txt`."""
    task = OwnText()
    return Run(
        task=task,
        model=LanguageModelConfig(
            **task.facts, max_len=task.max_len, dim=128, num_heads=4, num_layers=2
        ),
        train=TrainConfig(steps=1000, batch_size=16, lr=2e-3, eval_every=100),
    )
