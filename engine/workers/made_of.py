"""How a deposit was made: what its provenance says that no engine knows."""

import platform
import socket
from datetime import UTC, datetime

from logitbank.engine.plan.extraction import Extraction, Prepared
from logitbank.store.format.schema import Json
from logitbank.version import __version__


def made_of(extraction: Extraction, index: int, prepared: Prepared) -> dict[str, Json]:
    """Of the checkpoint with this number in the extraction's suite."""
    settings, adapters = prepared.settings, prepared.adapters
    borrowed: dict[str, Json] = {}
    if settings.adapter_languages and adapters is not None:
        borrowed = {"adapter_from": adapters.describe()}
    return borrowed | {
        "source": extraction.suite.checkpoints[index].source.describe(),
        "tokenizer": prepared.tokenizer.digest,
        "special_tokens": {**prepared.special_tokens},
        "logitbank_version": __version__,
        "host": socket.gethostname(),
        "platform": platform.platform(),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "trust_remote_code": settings.trust_remote_code,
    }
