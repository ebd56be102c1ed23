"""Memory of the transformers engine on a GPU: at least the weights."""

from pathlib import Path

from logitbank.engine.backends.protocol import EngineSettings
from logitbank.engine.backends.weight_bytes import weight_bytes
from logitbank.engine.weights.config import ModelConfig
from logitbank.errors import DeviceError


def check_memory(settings: EngineSettings, folder: Path, config: ModelConfig) -> None:
    """Refuse weights that do not fit into the memory of the settings.

    Raises
    ------
    DeviceError
        The weights do not fit.
    """
    if (free := settings.gpu_memory) is None:
        return
    weights = weight_bytes(folder, settings.compute_dtype)
    if weights.total > free:
        raise DeviceError(
            f"The GPU has {free / 1e9:.1f} GB of free memory for each engine, and the weights"
            f" take {weights.total / 1e9:.1f} GB. Use --compute-dtype bfloat16, fewer"
            " --workers, or a larger GPU."
        )
