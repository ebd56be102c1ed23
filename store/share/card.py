"""The README.md of a bank on the Hugging Face Hub: title, license, citation and how to open it."""

import json
import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import unquote

from logitbank.store.format.about import FIELDS, bank_sources, licenses
from logitbank.store.format.index import Objects
from logitbank.store.read.provenance import index_digest

CARD = "README.md"
MARK = "<!-- Written by logitbank. It is updated by each push until this line is removed. -->"
_DESCRIPTION = (
    "A bank of `logitbank`: logits, ranks and log-sum-exp of language model checkpoints on prompts,"
    " in Zarr v3 and Parquet."
)
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


def card(objects: Objects, *, url: str) -> str:
    """The card of a bank; the end of `url` replaces a missing title."""
    from huggingface_hub import DatasetCardData

    about = _attributes(objects["zarr.json"].text)
    title = _line(about.get("title")) or url.rpartition("/")[2]
    names = licenses(about)
    license_ = _line(", ".join(names))
    digest = index_digest(objects)
    prompts = {
        unquote(match[1]): path for path in sorted(objects) if (match := _PROMPTS.fullmatch(path))
    }
    tables = {f"prompts-{re.sub(r'[^A-Za-z0-9._-]', '_', n)}": p for n, p in prompts.items()}
    if any(path.endswith("/scores/all.parquet") for path in objects):
        tables["scores"] = "*/*/*/*/scores/all.parquet"
    known = license_.lower() if license_.lower() in _LICENSES else None
    front = DatasetCardData(
        pretty_name=title,
        license=known or ("other" if license_ else None),
        license_name=None if known else license_ or None,
        # The viewer of the Hub shows prompts and scores.
        configs=[{"config_name": name, "data_files": path} for name, path in tables.items()]
        or None,
        tags=["logitbank", "logits", "training-dynamics"],
    ).to_yaml()
    models = {unquote(path.split("/")[0]) for path in objects if "/commits/" in path}
    size = sum(value.digest.bytes for value in objects.values())
    text = f"""---
{front}
---

{MARK}

# {_escaped(title)}

{_DESCRIPTION}

```console
$ pip install '.[remote]'  # in a clone of logitbank
$ logitbank info {url}
$ logitbank pull {url} bank.zarr
```

```python
import logitbank

bank = logitbank.open({json.dumps(url)})
```

Models: {_listed(models)}. Prompt sets: {_listed(prompts)}. Size: {size:,} bytes.
"""
    if license_:
        text += f"\nLicense of the data: {_escaped(license_)}.\n"
    for source in bank_sources(about):
        parts = "; ".join(_line(source[name]) for name in FIELDS if source[name])
        text += f"\nFrom {_escaped(parts)}: {_listed(source['models'])}.\n"
    citation = str(about.get("citation") or "").strip() or f"{title}. {url}"
    cited = [*citation.splitlines(), f"Digest of the bank: {digest}"]
    text += "\nPlease cite:\n\n" + "".join(f"    {line}\n" for line in cited)
    return f"{text}\n`logitbank verify FOLDER --digest {digest}` compares a copy.\n"


def _attributes(text: str | None) -> dict[str, Any]:
    try:
        attributes = json.loads(text or "")["attributes"]["logitbank"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}
    return attributes if isinstance(attributes, dict) else {}


def _line(value: object) -> str:
    """Text on one line; empty for None."""
    return "" if value is None else " ".join(str(value).split())


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(_escaped, sorted(names))) or "none"


def _escaped(text: str) -> str:
    """Text that is neither Markdown nor HTML."""
    safe = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]|#])", r"\\\1", safe)
