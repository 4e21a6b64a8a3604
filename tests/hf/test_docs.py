"""The examples of docs/huggingface.md run."""

import re
from pathlib import Path

import pytest

from tests.hf.small import transformers  # noqa: F401  its absence skips this file

PAGE = (Path(__file__).parents[2] / "docs/huggingface.md").read_text()
EXAMPLES = re.findall(r"<!-- run -->\n```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_example(example, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(example, names)
    assert len(names) > 3


def test_every_block_of_python_is_run():
    assert len(EXAMPLES) == PAGE.count("```python") >= 2
