"""The example of docs/explore.md runs."""

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "explore.md").read_text()
EXAMPLES = re.findall(r"<!-- run -->\n```python\n(.*?)```", PAGE, re.DOTALL)


def test_the_example_runs_and_leaves_a_page(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (example,) = EXAMPLES
    exec(example, {})
    assert (tmp_path / "runs/attention.html").read_text().startswith("<!doctype html>")
    assert capsys.readouterr().out.count("stochastic torch.Size([1, 2, 6, 6])") == 2
