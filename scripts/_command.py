"""What every script shares: exit codes and errors in one sentence."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from feda4fair.errors import Feda4FairError


def run(main: Callable[[], None], *, stopped: str = "nothing was left behind") -> int:
    """Run a script; return 0 when done, 1 when it failed with one sentence, 130 on Ctrl-C.

    Parameters
    ----------
    main : callable
        The script.
    stopped : str
        What to say after Ctrl-C.
    """
    try:
        main()
    except Feda4FairError as error:
        if "--debug" in sys.argv:
            raise
        print(f"error: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # Whoever read the output went away, as in `build.py ... | head`; the work is done.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print(f"stopped; {stopped}.", file=sys.stderr)
        return 130
    return 0
