"""Sphinx's settings for the site; ``build.py`` calls it."""

from __future__ import annotations

import os
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx

project = "Schedule explorer"
author = "The schedule explorer authors"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
include_patterns = [
    *("index.md", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "examples/README.md"),
    *("docs/*.md", "api/*.md", "notebooks/**.ipynb"),
]
html_theme = "furo"
html_title = project
html_static_path = ["../../build/static"]  # which build.py fills
html_js_files = ["plotly.min.js"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_search_summary = False  # which would be fetched from a server
html_show_copyright = False
html_math_renderer = "mathml"
pygments_style = "friendly"

myst_enable_extensions = ["amsmath", "dollarmath", "html_image"]
myst_heading_anchors = 4
nb_execution_mode = "off"  # build.py executes, and keeps what has not changed
nb_merge_streams = True
suppress_warnings = [
    "myst.header",  # a notebook may begin below the first level
    "mystnb.unknown_mime_type",  # build.py has put HTML beside them
]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
napoleon_google_docstring = True
napoleon_use_rtype = False
os.environ.setdefault("NUMBA_DISABLE_JIT", "1")  # nothing here computes


def setup(app: Sphinx) -> None:
    """Formulae as MathML, which browsers draw by themselves: no script, no network."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))


def _inline(translator: Any, node: nodes.math) -> None:
    translator.body.append(convert(node.astext()))
    raise nodes.SkipNode


def _block(translator: Any, node: nodes.math_block) -> None:
    translator.body.append(f'<div class="math">{convert(node.astext(), display="block")}</div>')
    raise nodes.SkipNode
