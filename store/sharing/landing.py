"""The index.html of a bank in a folder that a web server gives out, from what the bank says. Pure.

It runs no script and fetches nothing: whoever finds the address in a paper reads what is there.
"""

from collections.abc import Iterable
from html import escape

from logitbank.store.format.index import Objects
from logitbank.store.sharing.card import MARK, UNKNOWN, opening
from logitbank.store.sharing.facts import SERIES, THE_REST, WHAT, Facts, facts_of

PAGE = "index.html"
_STYLE = (
    ":root{color-scheme:light dark}body{font:16px/1.5 system-ui,sans-serif;max-width:46rem;"
    "margin:2rem auto;padding:0 1rem}pre{overflow:auto;padding:.8rem;border:1px solid #8886;"
    "border-radius:6px}table{border-collapse:collapse;display:block;overflow:auto}"
    "th,td{text-align:left;padding:.2rem .8rem .2rem 0;border-bottom:1px solid #8886}"
)


def landing(objects: Objects, *, name: str) -> str:
    """Title, what is in the bank, how to open it, licence and citation, as a page."""
    facts = facts_of(objects, name=name)
    about = f"{WHAT.replace('`', '')} {facts.size}."
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            MARK,
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(facts.title)}</title>",
            f'<meta name="description" content="{escape(about)}">',
            f"<style>{_STYLE}</style>",
            "</head>",
            "<body>",
            "<main>",
            f"<h1>{escape(facts.title)}</h1>",
            f"<p>{escape(WHAT.replace('`', ''))}</p>",
            *_opened(facts),
            "<h2>What is in it</h2>",
            "<table>",
            f"<thead>{_row(SERIES, 'th')}</thead>",
            "<tbody>",
            *(_row(row, "td") for row in facts.series),
            "</tbody>",
            "</table>",
            f"<p>Prompt sets: {escape(', '.join(facts.prompts)) or 'none'}."
            f" {escape(facts.size)}.</p>",
            *_said(facts),
            "</main>",
            "</body>",
            "</html>",
            "",
        ]
    )


def _opened(facts: Facts) -> Iterable[str]:
    scan = (f"scores = bank.scan({name!r})" for name in facts.prompts[:1])
    commands = "\n".join(opening(UNKNOWN))
    code = "\n".join(["import logitbank", f'bank = logitbank.open("{UNKNOWN}")', *scan])
    return (
        "<h2>Open it</h2>",
        f"<p>With the address of this page, less index.html, for {UNKNOWN}:</p>",
        f"<pre>{escape(commands)}</pre>",
        f"<pre>{escape(code)}</pre>",
    )


def _said(facts: Facts) -> Iterable[str]:
    if facts.made:
        rest = THE_REST.replace("`", "")
        yield f"<p>Made with {escape(facts.made)}. {escape(rest)}</p>"
    if facts.licence:
        yield f"<p>Licence of the data: {escape(facts.licence)}.</p>"
    if facts.citation:
        yield f"<h2>Please cite</h2>\n<pre>{escape(facts.citation)}</pre>"


def _row(cells: Iterable[str], tag: str) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in cells)}</tr>"
