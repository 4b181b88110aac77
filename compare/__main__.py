"""`python -m compare`."""

import atexit
import os
import sys

from compare.cli import main
from compare.errors import EXIT_INTERRUPTED

if __name__ == "__main__":  # bench starts processes, which import this module too
    exit_code = main()
    if exit_code == EXIT_INTERRUPTED:
        # Threads may still be at work in native code, which would crash if what it uses
        # were taken down around it. The handlers end the processes that were started.
        atexit._run_exitfuncs()
        os._exit(exit_code)
    sys.exit(exit_code)
