"""Every error that a caller can cause or meet, as one tree.

LogitbankError
├── UsageError            a call that cannot be right as written
├── PromptError           a prompt, option or answer that cannot be scored
├── SuiteError            a checkpoint or suite that is not there or does not fit the others
│   └── WeightsError      weights that are absent, unsafe, unreadable or not what was loaded
├── BankError             a bank that is not there or cannot do what was asked
│   ├── AbsentError       a prompt set, model or step that was named and that no bank has
│   ├── BankFormatError   not a bank, or a bank of another format version
│   ├── DamagedError      an object whose bytes are not those that were committed
│   ├── KeepLevelError    the bank kept too little for this question
│   └── RemoteError       a bank at a URL that cannot be reached, or answers wrongly
├── EngineError           a model run that gave no usable numbers
├── DiskSpaceError        a plan or a write larger than the free disk
└── MissingExtraError     a package of an optional extra is not installed

A message says what was wrong, the value received, and the next step. `exit_code` is what the
command line returns: 2 for a call that must change, 1 for work that failed. What was stopped from
outside, and goes on with the same command, ends with `INTERRUPTED`.
"""

INTERRUPTED = 3
"""Exit code after Ctrl-C, SIGTERM, or when a job's time was over."""


class LogitbankError(Exception):
    """Base of all errors that logitbank raises on purpose."""

    exit_code = 1


class UsageError(LogitbankError, ValueError):
    """A call that cannot be right as written."""

    exit_code = 2


class PromptError(LogitbankError, ValueError):
    """A prompt, option or answer that cannot be scored."""

    exit_code = 2


class SuiteError(LogitbankError, ValueError):
    """A checkpoint or suite that is not there or does not fit the others."""

    exit_code = 2


class WeightsError(SuiteError):
    """Weights that are absent, unsafe, unreadable or not what was loaded."""

    exit_code = 1


class BankError(LogitbankError):
    """A bank that is not there or cannot do what was asked."""


class AbsentError(BankError, UsageError):
    """A prompt set, model or step that was named and that no bank has."""


class BankFormatError(BankError, ValueError):
    """Not a bank, or a bank of another format version."""

    exit_code = 2


class DamagedError(BankError):
    """An object in a bank whose bytes are not those that were committed."""


class KeepLevelError(BankError, ValueError):
    """The bank kept too little for this question."""

    exit_code = 2


class RemoteError(BankError):
    """A bank at a URL that cannot be reached, or answers wrongly."""


class EngineError(LogitbankError, RuntimeError):
    """A model run that gave no usable numbers."""

    def __init__(self, message: str, *, query: int | None = None) -> None:
        super().__init__(message)
        self.query = query
        """Row in the query set that the error is about, where it is about one."""


class ReferenceCheckError(EngineError):
    """An engine disagrees with plain transformers; its results are not stored."""


class HeadError(EngineError):
    """A model whose logits are no head's product of a state; at other levels it can be kept."""


class DeviceError(EngineError):
    """A GPU that cannot do what is asked of it, whatever the checkpoint."""


class DiskSpaceError(LogitbankError):
    """A plan or a write larger than the free disk."""

    # No OSError: what reads would take it for damage of what is read.


class MissingExtraError(LogitbankError, ImportError):
    """A package of an optional extra is not installed."""

    exit_code = 2
