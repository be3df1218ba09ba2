"""The errors of the package. The class of an error says what its handler should do next.

FuseError
├── the input is wrong, nothing was written: correct it and call again
│   ├── InvalidInputError        (ValueError) an argument, option, predicate or batch
│   ├── SchemaMismatchError      (ValueError) a batch whose schema is not the table's
│   ├── UnsupportedTypeError     (TypeError) a column type that the format does not have
│   ├── NumberOverflowError      (OverflowError) a sum that does not fit its type
│   ├── UnsupportedEnvironmentError (RuntimeError) a Spark without what the call needs
│   ├── DuplicateWriterError     (ValueError) two sinks of one query under one writer name
│   └── AlreadyExistsError       (FileExistsError) a name that is taken
├── what was named does not exist
│   ├── NotFoundError            (LookupError) a table, version, branch or object
│   └── SnapshotExpiredError     (LookupError) a snapshot that has expired
├── a person has to decide
│   ├── StreamIdentityError      (RuntimeError) a batch that is neither new nor a replay
│   └── SchemaChangedError       (RuntimeError) a stream met another schema; restart it
├── try again later
│   ├── ConflictError            (RuntimeError) other writers won every attempt
│   ├── ConsumerBusyError        (RuntimeError) the named consumer is in use
│   └── ClockSkewError           (RuntimeError) this machine's clock is wrong
├── check the table before trying again
│   └── CommitStateUnknownError  (OSError) the commit may have succeeded
└── the store
    ├── StorageError             (OSError) a read or write failed: disk, rights, network
    ├── UnsupportedStorageError  (OSError) a store that cannot create an object exactly once
    ├── UnsupportedFormatError   (ValueError) a table that a newer release wrote
    └── CorruptObjectError       (ValueError) a stored object that is damaged, or is another one
"""

from __future__ import annotations


def printable(text: str) -> str:
    r"""Return `text` on one line, with control characters as escapes: `\n`, `\x1b`."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


class FuseError(Exception):
    """The root of the tree. Its text holds no control character but ends of lines.

    Attributes:
        message: what happened and what to do next, without values.
        context: the values, by name. Never holds a secret: it is printed and pickled.
    """

    def __init__(self, message: str, **context: object) -> None:
        super().__init__(message)
        self.message = message
        self.context = context

    def __str__(self) -> str:
        message = "\n".join(map(printable, self.message.split("\n")))
        if not self.context:
            return message
        values = ", ".join(f"{name}={value!r}" for name, value in self.context.items())
        return f"{message} [{values}]"

    def __reduce__(self) -> tuple[object, ...]:
        # Workers send errors to the driver pickled; OSError's own __reduce__ loses the context.
        return _rebuild, (type(self), self.message, self.context)


def _rebuild(cls: type[FuseError], message: str, context: dict[str, object]) -> FuseError:
    return cls(message, **context)


class InvalidInputError(FuseError, ValueError):
    """An argument, option, predicate or batch is wrong; nothing was written."""


class AmbiguousMergeError(FuseError, ValueError):
    """Several rows of the source act on one row of the table; nothing was committed."""


class SchemaMismatchError(FuseError, ValueError):
    """A batch's schema is not the table's; nothing was written."""


class UnsupportedTypeError(FuseError, TypeError):
    """A column has a type that the format does not hold; nothing was written."""


class NumberOverflowError(FuseError, OverflowError):
    """A sum or an average does not fit its type; nothing was written."""


class UnsupportedEnvironmentError(FuseError, RuntimeError):
    """This Spark, or this kind of session, lacks what the call needs; nothing was changed."""


class DuplicateWriterError(FuseError, ValueError):
    """Two sinks of one query share a writer name; the second one wrote nothing."""


class AlreadyExistsError(FuseError, FileExistsError):
    """The name is taken, perhaps by the caller's own earlier attempt."""


class NotFoundError(FuseError, LookupError):
    """There is no such table, version, branch or object."""


class SnapshotExpiredError(FuseError, LookupError):
    """The snapshot has expired."""


class StreamIdentityError(FuseError, RuntimeError):
    """A batch is neither new nor a proven replay; nothing was committed."""


class SchemaChangedError(FuseError, RuntimeError):
    """A stream reached a commit with another schema; a restart continues with that schema."""


class ConflictError(FuseError, RuntimeError):
    """Other writers won every attempt, or undid what this one needs; nothing was committed."""


class ConsumerBusyError(FuseError, RuntimeError):
    """The named consumer is in use by another reader."""


class ClockSkewError(FuseError, RuntimeError):
    """This machine's clock is too far ahead of the store's to stamp a snapshot."""


class CommitStateUnknownError(FuseError, OSError):
    """It is unknown whether the commit succeeded; nothing was deleted. Check, then try again."""


class StorageError(FuseError, OSError):
    """The store failed to read or write; the cause says why."""


class UnsupportedStorageError(FuseError, OSError):
    """The store cannot create an object exactly once, so it cannot hold a table safely."""


class UnsupportedFormatError(FuseError, ValueError):
    """A newer release wrote this, or it needs a feature that this release lacks."""


class CorruptObjectError(FuseError, ValueError):
    """A stored object is damaged, lost, or is not the one that its name or record says."""
