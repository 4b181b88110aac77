"""Work that goes on in threads nobody waits for when the program ends."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

_Result = TypeVar("_Result")


def start(function: Callable[..., _Result], *arguments: object) -> Future[_Result]:
    """Calls the function in a thread of its own, and returns its result to come.

    A pool of threads would be waited for, also by the user who presses Ctrl-C.
    """
    future: Future[_Result] = Future()

    def run() -> None:
        try:
            future.set_result(function(*arguments))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future
