"""What every script shares: exit codes and errors in one sentence.

Scripts import this module before anything else, so that Ctrl-C during slow imports is quiet, too.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import TracebackType

STOPPED = "stopped; nothing was left behind."


def _quiet(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        print(STOPPED, file=sys.stderr)
    elif isinstance(error, ModuleNotFoundError) and "--debug" not in sys.argv:
        print(
            f"error: {sys.executable} does not know {error.name}; run `make venv` and then "
            "`source .venv/bin/activate`, or `pip install -e .`.",
            file=sys.stderr,
        )
    else:
        sys.__excepthook__(kind, error, trace)


sys.excepthook = _quiet


def run(main: Callable[[], None], *, stopped: str = STOPPED) -> int:
    """Run a script; return 0 when done, 1 when it failed with one sentence, 130 on Ctrl-C."""
    from feda4fair.errors import Feda4FairError

    try:
        main()
    except BrokenPipeError:
        # Whoever read the output went away, as in `build.py ... | head`; the work is done.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (Feda4FairError, OSError) as error:
        if "--debug" in sys.argv:
            raise
        print(f"error: {_sentence(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(stopped, file=sys.stderr)
        return 130
    return 0


def _sentence(error: Exception) -> str:
    """Return the sentence of an error; the system's own ones lack a place and an end."""
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror}; mend that and run the same command again."
    return " ".join(str(error).split()) if isinstance(error, OSError) else str(error)
