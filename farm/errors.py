"""The errors of the farm. Each class says what its receiver can do; each message says what the user should do next.

FarmError
├── InputError          the user's input is wrong: fix the named file and field. Exit status 2, nothing was started.
├── EngineError         one engine did not do what was asked of it
│   ├── EngineStartError    it never became ready: the message carries the engine log's own error
│   ├── EngineGone          it died, failed inside or stopped answering: a fresh engine may answer the same request
│   ├── RequestRefused      it refused the request: any engine would refuse it again
│   └── StreamBroken        its answer was malformed, cut short or impossible: retry on a fresh engine
├── VariantNotActive    the engine runs, but not the variant that was asked for: no figure may be taken from it
├── JournalError        the journal cannot be read or written: nothing was lost, the message says what to free or repair
│   ├── JournalDamaged      its file is broken: the table beside it may hold what it held
│   └── SweepHeld           another driver works on the sweep: wait for it or stop it
└── TrackingError       MLflow did not take the results: they are in the journal, sync them later
"""

from __future__ import annotations


def first_line(error: BaseException) -> str:
    """An error of somebody else's in one line: the first of its message, or its class where it has none."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


class FarmError(Exception):
    """Anything the farm reports to its user as one sentence instead of a traceback."""

    exit_status = 1


class InputError(FarmError):
    """Wrong input: names the file, the field and the fix."""

    exit_status = 2


class EngineError(FarmError):
    """An engine did not do what was asked of it."""


class EngineStartError(EngineError):
    """The engine never became ready."""


class EngineGone(EngineError):
    """The engine died, failed inside or stopped answering."""


class RequestRefused(EngineError):
    """The engine refused a request."""


class StreamBroken(EngineError):
    """A streamed answer was malformed, cut short or carries impossible counts."""


class VariantNotActive(FarmError):
    """What runs is not the variant that was asked for."""


class JournalError(FarmError):
    """The journal cannot be read or written."""


class JournalDamaged(JournalError):
    """The journal's file is broken."""


class SweepHeld(JournalError):
    """Another driver works on the sweep."""


class TrackingError(FarmError):
    """MLflow did not take the results."""
