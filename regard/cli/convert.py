"""`regard convert FOLDER MIXER`: another mechanism in a trained model, taught by the model that it was."""

import copy
import shutil
from contextlib import suppress
from dataclasses import fields, replace
from os.path import realpath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tyro.conf import Positional

from regard.cli.arguments import Json, Words, given_options
from regard.cli.printing import print_facts, print_json
from regard.core import Above0, Count, Declared, MissingDataError, OptionError, RegardError, Seed
from regard.core.files import check_writable, file_sha256, plain

if TYPE_CHECKING:
    from torch import Tensor

    from regard.hf.stack import Stack

TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "vocab.json", "merges.txt")
TEACHING = ("steps", "whole_steps", "length", "batch_size", "lr", "seed")


class Convert(Declared):
    """Put another mechanism into a trained model of Transformers, and let the model teach it.

    The projections are re-used. Teaching first lets each new mixer learn what the old one gave, then the whole stack; each
    part is kept only if it lowers the stack's error on windows that were not taught on. A killed command goes on where it
    was. `regard.hf.load(out)` reads the result.
    """

    folder: Positional[Path]
    """config.json and safetensors, as save_pretrained writes them, or a .gguf file"""
    mixer: Positional[str]
    """a name of `regard ls mixers`"""
    out: Path = Path("runs/convert")
    """where the new model is written"""
    options: Words = ()
    """of the mixer: NAME=VALUE"""
    max_len: int | None = None
    """the longest input; a table of positions that is shorter is tiled"""
    layers: tuple[Count, ...] = ()
    """numbers of the layers that are changed, from 0 on; all by default"""
    text: Path | None = None
    """a text file to learn on, and to compare both models on; without it the mixers are left untaught"""
    steps: Count = 100
    """of teaching layer by layer"""
    whole_steps: Count = 30
    """of teaching the whole stack afterwards"""
    length: int = 128
    """tokens of a window of the text"""
    batch_size: int = 8
    """windows of a step"""
    lr: Above0 | None = None
    """of the layers; a tenth of it for the whole stack. By default 5e-4 and 2e-4, or 1e-4 and 5e-5 where the error before teaching is at most 0.5"""
    seed: Seed = 0
    json: Json = False

    def run(self) -> None:
        from regard.hf import convert, load, save
        from regard.hf.load import config_text
        from regard.lab.train.distillation import HELD
        from regard.mixers.build import check_own

        if not self.folder.exists():
            raise MissingDataError(f"convert: there is no {self.folder}")
        if realpath(self.out) == realpath(self.folder):
            raise OptionError(f"convert: --out ({self.out}) is the folder of the model itself")
        for one in fields(self):
            if one.name in TEACHING and not self.text and getattr(self, one.name) != one.default:
                raise OptionError(f"convert: {one.name} is of teaching, which needs --text")
        check_writable(self.out, folder=True)
        _check_free(self.out)
        ids = _tokens(self.folder, self.text, self.length) if self.text else None
        teacher, options = load(self.folder), given_options(self.options)
        layers = sorted({*self.layers}) or None
        check_own("convert", options, "layers")
        student = convert(teacher, self.mixer, max_len=self.max_len, layers=layers, **options)
        config_text(student.origin)  # what cannot be saved is refused before it is taught
        found = {
            "mixer": self.mixer,
            "layers changed": len(layers or student.mixers),
            "layers": len(student.mixers),
        }
        if ids is not None:
            found |= self._taught(student, teacher, ids)  # type: ignore[arg-type]
        save(student, self.out)
        for name in TOKENIZER:
            (self.out / name).unlink(missing_ok=True)  # of another model
            if (self.folder / name).is_file():
                shutil.copyfile(self.folder / name, self.out / name)
        found["folder"] = self.out
        (print_json if self.json else print_facts)(found)
        if ids is not None and not self.json:
            print(
                f"Error 0 is the model itself; measured on {HELD} windows that were not taught on."
            )

    def _taught(self, student: "Stack", teacher: "Stack", ids: "Tensor") -> dict[str, Any]:
        """Teach in two runs, each with checkpoints of its own; errors and perplexities on held-out windows."""
        from torch import nn

        from regard.hf.convert import layer_error, rates, stack_error
        from regard.lab.train import TrainConfig, fit
        from regard.lab.train.distillation import Distillation

        whole = Distillation(teacher=teacher, ids=ids, length=self.length, error=stack_error)
        each, splits = replace(whole, error=layer_error), whole.load()
        spoken = teacher.causal and teacher.head is not None

        def quality(when: str) -> dict[str, Any]:
            found = {f"error{when}": whole.score(student, whole.held_out())}
            return found | ({f"perplexity{when}": whole.perplexity(student)} if spoken else {})

        found = quality(" untaught")
        kept = list[str]()
        error = whole.score(student, whole.held_out("valid"))
        each_lr, whole_lr = (self.lr, self.lr / 10) if self.lr else rates(error)
        facts = ("mixer", "options", "max_len", "layers", "steps")  # equal where a teaching goes on
        origin = {name: getattr(self, name) for name in facts}
        inside = [self.folder] if self.folder.is_file() else self.folder.glob("*.safetensors")
        origin["model"] = [str(self.folder.resolve()), *map(file_sha256, sorted(inside))]
        for phase, task, steps, lr in (
            ("layers", each, self.steps, each_lr),
            ("whole", whole, self.whole_steps, whole_lr),
        ):
            if steps == 0:
                continue
            student.requires_grad_(task is whole)
            nn.ModuleList(student.mixers).requires_grad_()
            config = TrainConfig(
                steps=steps,
                batch_size=self.batch_size,
                lr=lr,
                weight_decay=0.0,
                seed=self.seed,
                eval_every=max(1, steps // 4),
                checkpoint_every=max(1, steps // 10),
                keep=1,
                log_dir=None,
            )
            before = copy.deepcopy(student.state_dict())
            fit(
                student, task, config, self.out / "teaching" / phase,
                splits=splits, origin={"convert": origin}, progress=not self.json,
            )  # fmt: skip
            after = whole.score(student, whole.held_out("valid"))
            if after < error:
                error, kept = after, [*kept, phase]
            else:
                student.load_state_dict(before)
        student.requires_grad_().eval()
        found["teaching kept"] = " and ".join(kept) or "nothing: it lowered no error"
        found |= quality("")
        if spoken:
            found["perplexity of the model"] = whole.perplexity(teacher)
        return found


def _check_free(folder: Path) -> None:
    """Raise OptionError for the folder of a model that another command wrote."""
    from regard.hf.config import RegardConfig
    from regard.hf.load import read_config

    held = [name for name in ("config.json", *TOKENIZER) if (folder / name).exists()]
    with suppress(RegardError):
        held *= read_config(folder).get("model_type") != RegardConfig.model_type
    if held:
        raise OptionError(f"convert: --out ({folder}) has a {held[0]} already: name another folder")


def _tokens(folder: Path, text: Path, length: int) -> "Tensor":
    """The text in the model's own tokens; each window of this length has the special tokens that the model knows around a text."""
    import torch

    from regard.cli.checkpoints import tokenizer_of, tokenizing

    words, tokenizer = plain(text).read_text("utf-8", "replace"), tokenizer_of(folder)
    if tokenizer is None:
        raise MissingDataError(
            f"convert: {folder} has no tokenizer.json, with which --text would be read. Save the tokenizer beside the "
            "model (tokenizer.save_pretrained), or leave --text out."
        )
    special = tokenizer.num_special_tokens_to_add(False)
    if length < special + 2:
        raise OptionError(
            f"convert: windows of length {length} have no room for two tokens beside {special} special ones"
        )
    tokenizer.enable_truncation(length)
    with tokenizing(folder):
        first = tokenizer.encode(words)
    windows = (first, *first.overflowing)
    return torch.tensor([id for one in windows if len(one.ids) == length for id in one.ids])
