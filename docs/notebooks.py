"""Two of the examples as notebooks with their outputs: `make notebooks` runs them and writes examples/*.ipynb."""

import re
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parent.parent / "examples"
NOTEBOOKS = ("first_steps", "compare_on_your_machine")


def cells(text: str) -> list[tuple[str, str]]:
    """(markdown or code, source) of a program: `# %%` begins a cell, and the comment at its head is text."""
    found = []
    for part in re.split(r"^# %%\n", text, flags=re.M):
        head = re.match(r"(?:#.*\n)*", part)
        assert head is not None
        if told := re.sub(r"^# ?", "", head[0], flags=re.M).strip():
            found.append(("markdown", told))
        if code := part[head.end() :].strip():
            found.append(("code", code))
    return found


def write(name: str) -> None:
    import nbformat
    from nbclient import NotebookClient

    book = nbformat.v4.new_notebook()
    makers = {"markdown": nbformat.v4.new_markdown_cell, "code": nbformat.v4.new_code_cell}
    for index, (kind, source) in enumerate(cells((EXAMPLES / f"{name}.py").read_text())):
        book.cells.append(makers[kind](source, id=f"cell-{index}"))
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    book.metadata["kernelspec"] = kernel
    NotebookClient(book, timeout=300, kernel_name="python3").execute()
    for cell in book.cells:
        cell.metadata.clear()  # the clock
    nbformat.write(book, EXAMPLES / f"{name}.ipynb")


if __name__ == "__main__":
    for name in sys.argv[1:] or NOTEBOOKS:
        write(name)
