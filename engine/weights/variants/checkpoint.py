"""A checkpoint's tensors as they are run: whole weights, quantised ones, or an adapter on either.

Engines, proofs and digests see one stream of ordinary tensors.
"""

from pathlib import Path

from logitbank.engine.weights.variants.adapted import AdaptedWeights
from logitbank.engine.weights.variants.adapter_config import ADAPTER_CONFIG, AdapterConfig
from logitbank.engine.weights.variants.quantised import QuantisedWeights, scheme_of
from logitbank.engine.weights.variants.whole import CheckpointWeights, WholeWeights
from logitbank.engine.weights.weights import check_weights
from logitbank.errors import SuiteError


def is_adapter(folder: Path) -> bool:
    """Whether a folder holds an adapter, which is nothing without its base."""
    return (folder / ADAPTER_CONFIG).is_file()


def body_folder(folder: Path, base: Path | str | None) -> Path:
    """The folder that a checkpoint's config, tokenizer and architecture are from.

    Raises
    ------
    SuiteError
        It is an adapter, and no base is known.
    """
    if not is_adapter(folder):
        return folder
    if base is None:
        raise SuiteError(f"{folder} is an adapter; give the folder of its base with --base")
    return Path(base)


def checkpoint_weights(
    folder: Path, *, base: Path | str | None, legacy_weights: bool
) -> CheckpointWeights:
    """The tensors of a checkpoint's folder, or of an adapter's folder on its base.

    Raises
    ------
    SuiteError
        An adapter's config cannot be read or asks for what is not supported, or it has no base.
    WeightsError
        Weights are not there, or an adapter's do not fit its base; seen in headers alone.
    """
    body = body_folder(folder, base)
    whole: CheckpointWeights = WholeWeights(body, legacy_weights=legacy_weights)
    if (scheme := scheme_of(body)) is not None:
        whole = QuantisedWeights(body, scheme, legacy_weights=legacy_weights)
    if body is folder:
        return whole
    return AdaptedWeights(folder, whole, legacy_weights=legacy_weights)


def check_checkpoint(folder: Path, *, base: Path | str | None, legacy_weights: bool) -> None:
    """Look whether a checkpoint's weights are all there, and fit together; reads no tensor.

    Raises
    ------
    SuiteError, WeightsError
        As `checkpoint_weights`; or a safetensors file is truncated or damaged.
    """
    weights = checkpoint_weights(folder, base=base, legacy_weights=legacy_weights)
    check_weights(weights.body, legacy_weights=legacy_weights)


def base_named_by(folder: Path) -> Path:
    """The folder that an adapter's config names as its base.

    Raises
    ------
    SuiteError
        It names none, or one that is not here.
    """
    name = AdapterConfig.read(folder).base
    if not name:
        raise SuiteError(f"{folder} names no base; give the base's folder with --base")
    if not (path := Path(name).expanduser()).is_dir():
        raise SuiteError(
            f"{folder} is an adapter of {name!r}, which is no folder here; give its base with"
            " --base, a folder or owner/name on the hub"
        )
    return path
