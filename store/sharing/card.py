"""The README.md of a bank on the Hugging Face Hub, from what the bank says of itself. Pure."""

import json
import re
from collections.abc import Iterable
from urllib.parse import unquote

from logitbank.store.format.index import Objects
from logitbank.store.sharing.facts import PROMPTS, SERIES, THE_REST, WHAT, facts_of

CARD = "README.md"
UNKNOWN = "https://…"
"""Stands for the address of a folder, which nobody knows while it is written."""
MARK = "<!-- Written by logitbank, which writes it again until this line is removed. -->"
_LICENCES = {
    *("apache-2.0", "mit", "bsd-3-clause", "unlicense", "gpl-3.0", "cc0-1.0", "pddl", "odbl"),
    *("odc-by", "cc-by-3.0", "cc-by-sa-3.0", "cc-by-4.0", "cc-by-sa-4.0", "cc-by-nc-4.0"),
    *("cc-by-nc-sa-4.0", "cc-by-nc-nd-4.0", "openrail"),
}
"""What the Hub knows of the licences that data have."""
_TAGS = ("logitbank", "logits", "training-dynamics")


def card(objects: Objects, *, url: str, parts: int = 1, name: str = "") -> str:
    """Title, licence, citation, what is in the bank, how it was made, and how to open it.

    `name`, else the last part of `url`, stands for a missing title.
    """
    facts = facts_of(objects, name=name or url.rpartition("/")[2])
    lines = [
        *front_matter(facts.title, facts.licence, _viewed(objects), _TAGS),
        MARK,
        "",
        f"# {escaped(facts.title)}",
        "",
        WHAT,
        "",
        *([f"With the address of this folder for {UNKNOWN}:", ""] if url == UNKNOWN else []),
        "```console",
        *opening(url),
        "```",
        "",
        "```python",
        "import logitbank",
        "",
        f"bank = logitbank.open({_quoted(url)})  # fetches what is asked for, no more",
        *(f"scores = bank.scan({_quoted(name)})" for name in facts.prompts[:1]),
        "```",
        "",
        f"| {' | '.join(SERIES)} |",
        f"|{'---|' * len(SERIES)}",
        *(f"| {' | '.join(map(escaped, row))} |" for row in facts.series),
        "",
        f"Prompt sets: {', '.join(map(escaped, facts.prompts)) or 'none'}. {facts.size}"
        + (f", in {parts} repositories." if parts > 1 else "."),
        "",
        *([f"Made with {escaped(facts.made)}. {THE_REST}", ""] if facts.made else []),
    ]
    return "\n".join([*lines, *terms(facts.licence, facts.citation)])


def terms(licence: str, citation: str) -> list[str]:
    """Lines that say the licence of the data and how to cite it, where a bank says so."""
    lines = [f"Licence of the data: {escaped(licence)}.", ""] if licence else []
    if citation:
        lines += ["Please cite:", "", *(f"    {text}" for text in citation.splitlines()), ""]
    return lines


def _quoted(text: str) -> str:
    """As Python reads it; an address to fill in keeps its dots."""
    return json.dumps(text, ensure_ascii=False)


def opening(url: str) -> tuple[str, ...]:
    """Commands that open a bank at a URL."""
    return (
        "$ pip install '.[remote]'  # in a clone of logitbank",
        f"$ logitbank info {url}",
        f"$ logitbank pull {url} bank.zarr",
    )


def part_card(url: str) -> str:
    """The card of a repository that holds a further part of a bank."""
    return f"{MARK}\n\nA part of the bank {url}, which names it: open that.\n"


def _viewed(objects: Iterable[str]) -> list[str]:
    """Prompts and scores, which the Hub's viewer shows as tables: one configuration each."""
    files = {
        f"prompts-{re.sub(r'[^A-Za-z0-9._-]', '_', unquote(match[1]))}": path
        for path in sorted(objects)
        if (match := PROMPTS.fullmatch(path))
    }
    if any(path.endswith("/scores/all.parquet") for path in objects):
        files["scores"] = "*/*/*/*/scores/all.parquet"
    lines = [
        text
        for name, path in files.items()
        for text in (f"- config_name: {json.dumps(name)}", f"  data_files: {json.dumps(path)}")
    ]
    return ["configs:", *lines] if lines else []


def front_matter(
    title: str, licence: str, configs: Iterable[str], tags: Iterable[str]
) -> list[str]:
    """The YAML at a card's top, which the Hub reads."""
    known = licence.lower() in _LICENCES
    lines = ["---", f"pretty_name: {json.dumps(title)}"]
    if licence:
        lines += [f"license: {licence.lower() if known else 'other'}"]
        lines += [] if known else [f"license_name: {json.dumps(licence)}"]
    lines += configs
    return [*lines, "tags:", *(f"- {tag}" for tag in tags), "---", ""]


def escaped(text: str) -> str:
    """Text that is neither Markdown nor HTML."""
    safe = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]|#])", r"\\\1", safe)
