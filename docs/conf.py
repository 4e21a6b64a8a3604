"""The documentation site: `make site`. docs/*.md are its pages; docs/pages.py generates one for each mechanism, and the public names."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import pages

import regard

project, author, release = "Regard", "The Regard authors", regard.__version__
project_copyright = author
extensions = ["myst_parser"]
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3
source_suffix = {".md": "markdown"}
highlight_language = "text"  # of a block that names none: commands
exclude_patterns = ["_static", "matrices", "peers"]
html_theme = "pydata_sphinx_theme"
html_title = "Regard"
html_static_path = ["_static"]
html_css_files = ["regard.css"]
html_js_files = ["saved.js"]
html_show_sourcelink = False
alone = ("*", "findings/*", "speed/*", "trust/*", "reference/names")
html_sidebars = {page: [] for page in alone}
html_theme_options = {
    "header_links_before_dropdown": 4,
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
}
suppress_warnings = ["myst.header", "misc.highlighting_failure"]
suppress_warnings += ["toc.empty_glob", "toc.not_included"]
INCLUDED = {
    "examples/README.md": "docs/examples.md",
    "CONTRIBUTING.md": "docs/contributing.md",
    "CHANGELOG.md": "docs/changes.md",
}
"""File outside docs/ -> the page that includes it."""


def relink(app, path, parent, content):
    """Links of an included file, as its page needs them."""
    text = content[0]
    if path.parent.name == "examples":
        text = text.replace("](", "](../examples/")
    for file, page in INCLUDED.items():
        text = text.replace(f"]({file})", f"]({page})")
    content[0] = text


def setup(app):
    """Generates the pages before Sphinx looks for them."""
    app.add_directive("matrix", pages.Matrix)
    app.add_directive("saved", pages.Saved)
    app.connect("include-read", relink)
    pages.write()
    return {"parallel_read_safe": True}
