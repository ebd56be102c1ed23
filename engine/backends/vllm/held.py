"""What vLLM's model holds after a swap, also of the parameters that its CPU build repacks."""

from typing import Any

import torch

from logitbank.engine.weights.proof import Fingerprint, add, fingerprint


class Held:
    """Fingerprint of a model's parameters, those that were repacked included."""

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype
        self._packed: dict[str, Fingerprint] = {}

    def forget(self) -> None:
        """Forget what was repacked before: another checkpoint is coming."""
        self._packed.clear()

    def watch_packing(self, model: torch.nn.Module) -> None:
        """Fingerprint parameters that the CPU build repacks, at the moment before it does.

        oneDNN's packed copy cannot be read back, and the parameter itself becomes empty.
        """
        for path, module in model.named_modules():
            method = getattr(module, "quant_method", None)
            process = getattr(method, "process_weights_after_loading", None)
            if process is None:
                continue

            def watched(
                layer: torch.nn.Module, *, _path: str = path, _process: Any = process
            ) -> None:
                before = {
                    name: fingerprint(parameter.to(self._dtype))
                    for name, parameter in layer.named_parameters(recurse=False)
                }
                _process(layer)
                for name, parameter in layer.named_parameters(recurse=False):
                    if name in before and parameter.numel() == 0:
                        self._packed[f"{_path}.{name}"] = before[name]

            method.process_weights_after_loading = watched  # type: ignore[union-attr]

    def fingerprint(self, model: torch.nn.Module) -> Fingerprint:
        """Of every parameter, counted under each of its names.

        The CPU build holds the biases of low-precision layers in float32, rounded all the same.
        """
        return add(
            *(
                fingerprint(parameter.to(self._dtype))
                if parameter.numel()
                else self._packed.get(name, (0, 1))  # what nobody saw being repacked is no file's
                for name, parameter in model.named_parameters(remove_duplicate=False)
            )
        )
