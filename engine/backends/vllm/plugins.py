"""What other packages bring into every engine of vLLM by being installed."""

from importlib.metadata import entry_points

_PROCESSORS = "vllm.logits_processors"


def refuse_other_processors() -> None:
    """Refuse to begin where a package registers logits processors, which change what is tapped.

    vLLM loads them whatever it is asked for, and its newer model runner ends where they have the
    interface of the older one.

    Raises
    ------
    RuntimeError
        No error of ours: it is the same for all checkpoints.
    """
    for entry in entry_points(group=_PROCESSORS):
        package = entry.dist.name if entry.dist is not None else entry.value
        raise RuntimeError(
            f"the package {package} registers the logits processor {entry.name!r}, which vLLM runs"
            " in every engine and which may change logits; uninstall it here, or use"
            " --engine transformers"
        )
