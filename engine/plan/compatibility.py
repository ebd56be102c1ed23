"""Whether a checkpoint belongs to the suite whose first checkpoint a plan was made by."""

from pathlib import Path
from typing import Self

from logitbank.engine.plan.extraction import Prepared
from logitbank.engine.tokenizers.tokenizer import Tokenizer, files_digest, tokenizer_folder
from logitbank.engine.weights.config import ModelConfig
from logitbank.engine.weights.config_identity import ConfigFields, config_fields
from logitbank.engine.weights.weights import check_plain, check_weights
from logitbank.errors import SuiteError


class Compatibility:
    """Compares checkpoints with the first: architecture, vocabulary and tokenizer are the same.

    What else their configs say may differ: who says something else has an engine of its own.

    Looked at before a worker is given it, a bad checkpoint costs no new worker: an engine whose
    load failed is not used again.
    """

    def __init__(
        self,
        config: ModelConfig,
        tokenizer: Tokenizer,
        first: Path,
        *,
        longest: int = 0,
    ) -> None:
        """`config` and `tokenizer` are those of the checkpoint in the folder `first`.

        All have to take `longest` tokens.
        """
        self._config, self._tokenizer = config, tokenizer
        self._longest = longest
        self._same_tokenizer = {files_digest(tokenizer_folder(first))}

    @classmethod
    def of_plan(cls, prepared: Prepared) -> Self:
        """By the checkpoint that a plan was made by."""
        return cls(
            *(prepared.requested.config, prepared.tokenizer, prepared.first),
            longest=prepared.settings.max_length,
        )

    def check(self, folder: Path) -> ConfigFields:
        """What the files of one checkpoint say of its model; not for several threads at once.

        Raises
        ------
        SuiteError
            Its architecture, vocabulary or tokenizer is another, it or it takes fewer tokens than
            a query has.
        WeightsError
            Its weights are not there, are an adapter's, or quantised.
        """
        check_plain(folder)
        config = ModelConfig.read(folder)
        if difference := config.difference(self._config):
            raise SuiteError(
                f"its {difference}; a suite has one architecture and vocabulary: extract it on "
                "its own"
            )
        if config.max_length is not None and config.max_length < self._longest:
            raise SuiteError(
                f"it takes at most {config.max_length} tokens, the first checkpoint more, and the"
                f" longest query has {self._longest}: extract it on its own, with shorter prompts"
            )
        self._check_tokenizer(tokenizer_folder(folder))
        check_weights(folder)
        return config_fields(folder)

    def _check_tokenizer(self, folder: Path) -> None:
        if (files := files_digest(folder)) in self._same_tokenizer:
            return  # a second is saved: most suites have the same files at every step
        tokenizer, first = Tokenizer.load(folder), self._tokenizer
        if tokenizer.digest != first.digest:
            raise SuiteError(
                f"its tokenizer ({tokenizer.entries} entries, digest {tokenizer.digest[:12]}) "
                f"differs from the first checkpoint's ({first.entries} "
                f"entries, digest {first.digest[:12]}); extract it on its own"
            )
        self._same_tokenizer.add(files)
