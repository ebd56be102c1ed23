"""The README.md of a published bank: title, license, citation, content and how to open it. Pure."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import unquote

from logitbank.store.format.index import Objects, deposit_of
from logitbank.store.format.schema import Keep

CARD = "README.md"
UNKNOWN = "https://…"
"""Stands for the address of a folder, which is unknown when the card is written."""
MARK = "<!-- Written by logitbank. It is updated by each push until this line is removed. -->"
_DESCRIPTION = (
    "A bank of `logitbank`: logits, ranks and log-sum-exp of language model checkpoints on prompts,"
    " in Zarr v3 and Parquet."
)
_ADDRESS = f"\nReplace {UNKNOWN} with the address of this folder:\n"
_SERIES = ("Model", "Run", "Checkpoints", "Steps", "Keep", "Dtype")
_PROMPTS = re.compile(r"prompts/(.+)-[0-9a-f]{12}\.parquet")
_LICENSES = {
    *("apache-2.0", "mit", "bsd-3-clause", "unlicense", "gpl-3.0", "cc0-1.0", "pddl", "odbl"),
    *("odc-by", "cc-by-3.0", "cc-by-sa-3.0", "cc-by-4.0", "cc-by-sa-4.0", "cc-by-nc-4.0"),
    *("cc-by-nc-sa-4.0", "cc-by-nc-nd-4.0", "openrail"),
}
"""Licenses that the Hub has an identifier for."""


def is_written_by_hand(old: bytes | None) -> bool:
    """Whether a user wrote this card. It then stays unchanged."""
    return old is not None and MARK.encode() not in old


def card(objects: Objects, *, url: str, name: str = "") -> str:
    """The card of a bank; `name`, or the end of `url`, replaces a missing title."""
    about = _attributes(objects["zarr.json"].text)
    title = _line(about.get("title")) or name or url.rpartition("/")[2]
    license_ = _line(about.get("licence"))
    deposits = [
        _attributes(value.text)
        for path, value in sorted(objects.items())
        if (folder := deposit_of(path)) and path == f"{folder}/zarr.json"
    ]
    prompts = {
        unquote(match[1]): path for path in sorted(objects) if (match := _PROMPTS.fullmatch(path))
    }
    size = sum(value.digest.bytes for value in objects.values())
    front = "\n".join(_front_matter(title, license_, prompts, objects))
    names = ", ".join(map(_escaped, prompts)) or "none"
    rows = "".join(f"| {' | '.join(map(_escaped, row))} |\n" for row in _rows(deposits))
    scan = f"\nscores = bank.scan({_quoted(next(iter(prompts)))})" if prompts else ""
    text = f"""{front}
{MARK}

# {_escaped(title)}

{_DESCRIPTION}
{_ADDRESS if url == UNKNOWN else ""}
```console
$ pip install '.[remote]'  # in a clone of logitbank
$ logitbank info {url}
$ logitbank pull {url} bank.zarr
```

```python
import logitbank

bank = logitbank.open({_quoted(url)}){scan}
```

| {" | ".join(_SERIES)} |
|{"---|" * len(_SERIES)}
{rows}
Prompt sets: {names}. {len(objects):,} objects, {size:,} bytes.
"""
    if license_:
        text += f"\nLicense of the data: {_escaped(license_)}.\n"
    if citation := str(about.get("citation") or "").strip():
        text += "\nPlease cite:\n\n" + "".join(f"    {line}\n" for line in citation.splitlines())
    return text


def _front_matter(
    title: str, license_: str, prompts: Mapping[str, str], objects: Objects
) -> Iterable[str]:
    """The YAML that the Hub reads; its viewer shows prompts and scores as tables."""
    yield from ("---", f"pretty_name: {json.dumps(title)}")
    if license_.lower() in _LICENSES:
        yield f"license: {license_.lower()}"
    elif license_:
        yield from ("license: other", f"license_name: {json.dumps(license_)}")
    tables = {f"prompts-{re.sub(r'[^A-Za-z0-9._-]', '_', n)}": p for n, p in prompts.items()}
    if any(path.endswith("/scores/all.parquet") for path in objects):
        tables["scores"] = "*/*/*/*/scores/all.parquet"
    if tables:
        yield "configs:"
    for name, files in tables.items():
        yield from (f"- config_name: {json.dumps(name)}", f"  data_files: {json.dumps(files)}")
    yield from ("tags:", "- logitbank", "- logits", "- training-dynamics", "---", "")


def _rows(deposits: Iterable[Mapping[str, Any]]) -> Iterable[tuple[str, ...]]:
    """One row for each model, run and keep level; columns `_SERIES`."""
    series: dict[tuple[str, ...], set[Any]] = {}
    for attributes in deposits:
        level = str(Keep(attributes.get("keep"), attributes.get("keep_k")))  # type: ignore[arg-type]
        key = (*(_line(attributes.get(name)) for name in ("model", "run")), level)
        series.setdefault((*key, _line(attributes.get("dtype"))), set()).add(attributes.get("step"))
    for (model, run, keep, dtype), steps in series.items():
        numbers = sorted(step for step in steps if isinstance(step, int))
        span = [f"{numbers[0]:,} to {numbers[-1]:,}"] if numbers else []
        span += ["release"] if None in steps else []
        yield (model, run, str(len(steps)), " and ".join(span), keep, dtype)


def _attributes(text: str | None) -> dict[str, Any]:
    try:
        attributes = json.loads(text or "")["attributes"]["logitbank"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}
    return attributes if isinstance(attributes, dict) else {}


def _line(value: object) -> str:
    """Text on one line; empty for None."""
    return "" if value is None else " ".join(str(value).split())


def _quoted(text: str) -> str:
    """A Python string literal."""
    return json.dumps(text, ensure_ascii=False)


def _escaped(text: str) -> str:
    """Text that is neither Markdown nor HTML."""
    safe = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]|#])", r"\\\1", safe)
