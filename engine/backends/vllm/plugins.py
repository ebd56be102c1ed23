"""What other packages bring into vLLM's engines by being installed."""

from importlib.metadata import entry_points

_PROCESSORS = "vllm.logits_processors"


def refuse_other_processors() -> None:
    """Refuse to begin where a package registers logits processors, which change what is tapped.

    An engine of causal models loads them whatever it is asked for, and vLLM's newer model runner
    ends where they have the interface of the older one.

    Raises
    ------
    RuntimeError
        No error of ours: it is the same for all checkpoints.
    """
    for entry in entry_points(group=_PROCESSORS):
        package = entry.dist.name if entry.dist is not None else entry.value
        raise RuntimeError(
            f"the package {package} registers the logits processor {entry.name!r}, which vLLM"
            " runs whatever it is asked for and which may change logits; uninstall it here, or use"
            " --engine transformers"
        )
