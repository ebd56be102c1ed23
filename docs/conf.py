"""Configuration of the site: `make docs`. Neither the build nor the pages use the network."""

import re
import sys
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from numpy.typing import ArrayLike
from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx
from sphinx.ext.napoleon import Config, NumpyDocstring
from sphinx.util import logging
from sphinx.util.typing import stringify_annotation

import logitbank
from logitbank.engine.workers.events import Event

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
from commands import FOLDER, command_pages, commands_list, prompt_sets_table  # noqa: E402

_SHORT = {
    stringify_annotation(ArrayLike, "smart"): "ArrayLike",
    stringify_annotation(Event, "smart"): "Event",
    "<factory>": "...",
    "<function <lambda>>": "...",
}

project = "logitbank"
author = "the logitbank authors"
version = release = logitbank.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4
default_role = "code"  # `x` in a docstring
smartquotes = False  # --dry-run stays what one types

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
maximum_signature_line_length = 88

# Types of other packages, aliases and type variables, and types that callers only pass on.
nitpick_ignore_regex = [
    ("py:.*", r"(altair|collections|inspect|numpy|pathlib|pl|polars|typing|xarray|zarr)\..*"),
    (
        "py:.*",
        r"ArrayLike|Banks|Chart|Encoded|Estimate|Event|Floats|Json|Names|ScanCache|Steps|Tokenizer",
    ),
    ("py:.*", r"logitbank\.(analysis|engine|store)\..*"),
]

exclude_patterns = ["_*.md", "_gallery/*.md"]  # included in pages
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_title = f"logitbank {release}"
html_show_copyright = False
html_copy_source = False
html_show_sourcelink = False
html_math_renderer = "mathml"


def write_included(_: Sphinx) -> None:
    """Write the pages that are made from commands and prompt sets."""
    pages = {HERE / FOLDER / name: text for name, text in command_pages().items()}
    for path in set((HERE / FOLDER).glob("*.md")) - set(pages):
        path.unlink()
    (HERE / FOLDER).mkdir(exist_ok=True)
    included = {
        HERE / "_commands.md": commands_list(),
        HERE / "_prompt_sets.md": prompt_sets_table(),
    }
    for path, content in (included | pages).items():
        if not path.is_file() or path.read_text() != content:  # a new file time rebuilds the page
            path.write_text(content)


def mark_decisions(app: Sphinx, _: nodes.document) -> None:
    """Keep decision notes out of the search, where they would hide guides."""
    if app.env.docname.startswith("decisions/"):
        app.env.metadata[app.env.docname]["nosearch"] = True


def short_signature(
    _: Sphinx, __: str, ___: str, ____: object, _____: object, arguments: str | None, result: str
) -> tuple[str | None, str]:
    """Show short names of types and defaults."""
    for text, name in _SHORT.items():
        arguments = arguments and arguments.replace(text, name)
    return arguments, result


def without_help(_: Sphinx, documented: Any, __: bool) -> None:
    """Show `Annotated[type, help]` as the type."""
    annotations = getattr(documented, "__annotations__", {})
    for name, annotation in annotations.items():
        if get_origin(annotation) is Annotated:
            annotations[name] = get_args(annotation)[0]


class Docstring(NumpyDocstring):
    """Sections Returns and Yields are one text each, not a list of types."""

    def _parse_returns_section(self, section: str) -> list[str]:
        lines = self._dedent(self._consume_to_next_section())
        if any(line.startswith(" ") for line in lines):  # a type, then its description
            lines = self._dedent(lines[1:])
        return ["", *self._format_block(":returns: ", lines), ""]

    _parse_yields_section = _parse_returns_section


def numpy_docstring(
    app: Sphinx, _: str, name: str, documented: object, options: Any, lines: list[str]
) -> None:
    """Turn NumPy's sections into fields, and escape |x|, which Sphinx would substitute.

    `sphinx.ext.napoleon` would read "One row per model: …" below an attribute as its type.
    """
    plain = [line if ">>>" in line else line.replace("|", "\\|") for line in lines]
    for i in range(len(plain) - 1, 0, -1):  # text after a blank line is not a parameter
        if not plain[i - 1] and plain[i][:1].strip():
            plain.insert(i, "")
    text = Docstring(plain, Config(), app, "method", name, documented, options)
    lines[:] = text.lines()


def formula(translator: Any, node: nodes.Element) -> None:
    """Write a formula as MathML, which browsers show without a script."""
    block = isinstance(node, nodes.math_block)
    # docutils reads \frac12 as a fraction of 12.
    tex = re.sub(r"(\\[dt]?frac)\s*(\d)\s*(\d)", r"\1{\2}{\3}", node.astext())
    try:
        text = tex2mathml(tex, as_block=block)
    except MathError as error:
        text = node.astext()
        logging.getLogger(__name__).warning("formula %r: %s", text, error, location=node)
    # Without the padding, browsers give a fraction a scroll bar.
    translator.body.append(f'<div style="padding: 0.3em 0">{text}</div>\n' if block else text)
    raise nodes.SkipNode


def setup(app: Sphinx) -> None:
    app.add_lexer("csv", TextLexer)
    app.add_html_math_renderer("mathml", (formula, None), (formula, None))
    app.connect("builder-inited", write_included)
    app.connect("doctree-read", mark_decisions)
    app.connect("autodoc-process-docstring", numpy_docstring)
    app.connect("autodoc-before-process-signature", without_help)
    app.connect("autodoc-process-signature", short_signature)
