"""Every error that a caller can cause or meet, as one tree.

LogitbankError
├── UsageError            invalid arguments
├── PromptError           a prompt, option or answer that cannot be scored
├── SuiteError            a checkpoint or suite that is missing or inconsistent
│   └── WeightsError      weights that are missing, unsafe, unreadable or not as expected
├── BankError             a bank that is missing or does not support the operation
│   ├── AbsentError       a named prompt set, model or step that no bank has
│   ├── BankFormatError   a folder that is not a bank, or a bank of another format version
│   ├── DamagedError      an object whose bytes differ from those that were committed
│   ├── KeepLevelError    a storage level that does not contain the requested values
│   └── RemoteError       a bank at a URL that cannot be reached or sends invalid answers
├── EngineError           a model run without usable numbers
│   ├── ReferenceCheckError  an engine that disagrees with plain transformers
│   ├── HeadError         a model whose logits are not LM head × hidden state
│   └── DeviceError       a GPU that torch cannot use, or that does not support the computation
├── DrawingError          charts that this machine cannot draw
├── DiskSpaceError        a plan or a write larger than the free disk space
└── MissingExtraError     a package of an optional extra that is not installed

A message states the problem, the invalid value and the next step. `exit_code` is the exit code of
the command line: 2 for invalid calls, 1 for failed work.
"""

INTERRUPTED = 3
"""Exit code after Ctrl-C, SIGTERM, or the time limit of a job. The same command resumes."""


class LogitbankError(Exception):
    """Base of all errors that logitbank raises on purpose."""

    exit_code = 1


class UsageError(LogitbankError, ValueError):
    """Invalid arguments."""

    exit_code = 2


class PromptError(LogitbankError, ValueError):
    """A prompt, option or answer that cannot be scored."""

    exit_code = 2


class SuiteError(LogitbankError, ValueError):
    """A checkpoint or suite that is missing or inconsistent."""

    exit_code = 2


class WeightsError(SuiteError):
    """Weights that are missing, unsafe, unreadable or not as expected."""

    exit_code = 1


class BankError(LogitbankError):
    """A bank that is missing or does not support the operation."""


class AbsentError(BankError, UsageError):
    """A named prompt set, model or step that no bank has."""


class BankFormatError(BankError, ValueError):
    """A folder that is not a bank, or a bank of another format version."""

    exit_code = 2


class DamagedError(BankError):
    """An object in a bank whose bytes differ from those that were committed."""


class KeepLevelError(BankError, ValueError):
    """A storage level that does not contain the requested values."""

    exit_code = 2


class RemoteError(BankError):
    """A bank at a URL that cannot be reached or sends invalid answers."""


class EngineError(LogitbankError, RuntimeError):
    """A model run without usable numbers."""

    def __init__(self, message: str, *, query: int | None = None) -> None:
        super().__init__(message)
        self.query = query
        """Row in the query set that caused the error, if known."""


class ReferenceCheckError(EngineError):
    """An engine that disagrees with plain transformers. None of its results are stored."""


class HeadError(EngineError):
    """A model whose logits are not LM head × hidden state. Other storage levels support it."""


class DeviceError(EngineError):
    """A GPU that torch cannot use, or that does not support the computation, for any checkpoint."""


class DiskSpaceError(LogitbankError):
    """A plan or a write larger than the free disk space."""

    # Not an OSError: readers would treat that as damage.


class DrawingError(LogitbankError):
    """Charts that this machine cannot draw."""


class MissingExtraError(LogitbankError, ImportError):
    """A package of an optional extra that is not installed."""

    exit_code = 2
