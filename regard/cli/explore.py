"""`regard explore`: what a checkpoint attends to, as one page that opens from disk."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from regard.cli.arguments import Flag, Json
from regard.cli.bench import check_outputs
from regard.cli.printing import print_json
from regard.core import Declared, OptionError

if TYPE_CHECKING:
    from torch import nn

    from regard.cli.checkpoints import Loaded
    from regard.explore.attribution import Answer
    from regard.explore.inputs import Inputs

Ids = Annotated[str | None, arg(metavar="IDS")]
PAGE = Path("runs/explore/page.html")


class Explore(Declared):
    """Shows what a model attends to, head by head: one page that opens from disk and loads nothing.

    CHECKPOINT is a folder of `regard train`, one that TableClassifier.save wrote, one in the format of Hugging Face, or a .gguf file.
    """

    checkpoint: Positional[Path]
    """a folder, or a .gguf file"""
    text: str | None = None
    """what the model reads"""
    target: str | None = None
    """what the decoder of a translator reads"""
    file: Path | None = None
    """a text file, an image (.png, .jpg), or a table (.csv, .tsv), of which the page has the first eight rows; a history is a list in brackets, or parted by | or by spaces"""
    tokens: Ids = None
    """token ids in the place of a text: "5 3 9"; the sentences of a document are parted by "/\""""
    target_tokens: Ids = None
    compare: str | None = None
    """a second checkpoint on the same input, or, for a Hugging Face folder, a mixer to put in the place of its attention"""
    influence: Flag = False
    """how much each output depends on each token, in the place of weights: the same measure for all mechanisms"""
    max_tokens: int = 512
    """longer texts are cut"""
    window: int = 512
    """queries and keys that are drawn at a time"""
    page: Path = PAGE
    json: Json = False

    def run(self) -> None:
        from regard.cli.checkpoints import load
        from regard.explore.render import page

        for names in (("text", "file", "tokens"), ("target", "target_tokens")):
            given = [name for name in names if getattr(self, name) is not None]
            if len(given) > 1:
                options = " and ".join(f"--{name.replace('_', '-')}" for name in given)
                raise OptionError(f"explore: {options} exclude each other: give one")
        second = None if self.compare is None else Path(self.compare)
        check_outputs([self.file, self.checkpoint, second], page=self.page)
        loaded = load(self.checkpoint)
        inputs = loaded.inputs(self)
        other, answer = None, loaded.answer
        if self.compare is not None:
            other, answer = self._other(loaded, inputs)
        made = page(
            loaded.model,
            inputs,
            compare=other,
            names=(str(self.checkpoint), str(self.compare)),
            title=self.checkpoint.name,
            measure="influence" if self.influence else "auto",
            answer=(loaded.answer, answer),
            window=self.window,
        )
        where = made.save(self.page).resolve()
        if self.json:
            print_json({"page": where, "bytes": len(made.html.encode())})
        else:
            print(f"The page: {where}")

    def _other(self, loaded: "Loaded", inputs: "Inputs") -> "tuple[nn.Module, Answer]":
        """The second model, and which of its outputs is explained."""
        import numpy as np
        from torch.utils._pytree import tree_leaves_with_path

        from regard.cli.checkpoints import load
        from regard.mixers import MIXERS

        name = str(self.compare)
        if Path(name).exists():
            found = load(Path(name))
            ours, theirs = (
                dict(tree_leaves_with_path((one.args, one.kwargs)))
                for one in (inputs, found.inputs(self))
            )
            if ours.keys() != theirs.keys() or not all(
                np.array_equal(z, theirs[path], equal_nan=True) for path, z in ours.items()
            ):
                raise OptionError(
                    f"explore: --compare {name} reads other ids or numbers in this input: its words are numbered, or its "
                    "columns scaled, otherwise"
                )
            return found.model, found.answer
        if name not in MIXERS:
            raise OptionError(
                f"explore: --compare {name} is no folder or file, nor a mixer to put into a Hugging Face checkpoint"
            )
        from regard.hf import convert

        return convert(loaded.model, name), loaded.answer
