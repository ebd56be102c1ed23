"""Whether a checkpoint can be run with the plan that was made from the first checkpoint."""

from pathlib import Path

from logitbank.engine.tokenizers.tokenizer import Tokenizer, files_digest, tokenizer_folder
from logitbank.engine.weights.config import ModelConfig
from logitbank.engine.weights.config_identity import ConfigFields, config_fields
from logitbank.engine.weights.weights import (
    check_headers,
    check_plain,
    check_pointers,
    check_weights,
)
from logitbank.errors import SuiteError


class Compatibility:
    """Compares checkpoints with the first: architecture, vocabulary and tokenizer must be equal.

    Checkpoints that differ in other fields of their configs get an engine of their own. The check
    runs before a worker gets the checkpoint, because a failed load would cost the worker's engine.
    """

    def __init__(
        self, config: ModelConfig, tokenizer: Tokenizer, first: Path, *, longest: int = 0
    ) -> None:
        """`config` and `tokenizer` are those of the checkpoint in the folder `first`.

        All checkpoints must take `longest` tokens.
        """
        self._config, self._tokenizer = config, tokenizer
        self._longest = longest
        self._same_tokenizer = {files_digest(tokenizer_folder(first))}

    def check(self, folder: Path) -> ConfigFields:
        """Fields of the config of a compatible checkpoint. Not for several threads at once.

        Raises
        ------
        SuiteError
            Its architecture, vocabulary or tokenizer differs, or it does not take the longest
            query: this has too many tokens, or needs the other RoPE factors of a longrope model.
        WeightsError
            Its weights are missing, quantized, empty, a Git LFS pointer, or only an adapter.
        """
        tokenizer = tokenizer_folder(folder)
        check_pointers(folder, tokenizer)
        check_plain(folder)
        config = ModelConfig.read(folder)
        if difference := config.difference(self._config):
            raise SuiteError(
                f"its {difference}. A suite has one architecture and vocabulary: extract this "
                "checkpoint separately."
            )
        if config.max_length is not None and config.max_length < self._longest:
            raise SuiteError(
                f"it takes at most {config.max_length} tokens, but the longest prompt has "
                f"{self._longest}. Extract this checkpoint separately, with shorter prompts."
            )
        if config.rope_switch is not None and self._longest >= config.rope_switch:
            raise SuiteError(
                f"it uses other RoPE factors from {config.rope_switch:,} tokens on, which is not "
                f"supported, and the longest prompt has {self._longest:,}. Use shorter prompts."
            )
        self._check_tokenizer(tokenizer)
        check_weights(folder)
        check_headers(folder)
        return config_fields(folder)

    def _check_tokenizer(self, folder: Path) -> None:
        if (files := files_digest(folder)) in self._same_tokenizer:
            return  # This saves a second: most suites have the same files at every step.
        tokenizer, first = Tokenizer.load(folder), self._tokenizer
        if tokenizer.digest != first.digest:
            raise SuiteError(
                f"its tokenizer ({tokenizer.entries} entries) differs from the first checkpoint's "
                f"({first.entries} entries). Extract this checkpoint separately."
            )
        self._same_tokenizer.add(files)
