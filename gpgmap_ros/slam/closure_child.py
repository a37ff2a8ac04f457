"""The process of the loop closures (closure_process.py starts it): requests from its input, answers to its output."""

from __future__ import annotations

import os
import pickle
import queue
import signal
import sys
import threading
import traceback
from typing import Any

from gpgmap_ros.memory import limit_malloc_arenas
from gpgmap_ros.slam.closure_messages import Answer, Done, Problem
from gpgmap_ros.slam.closure_server import ClosureServer
from gpgmap_ros.slam.closure_warm_up import warm_up
from gpgmap_ros.slam.end_with_parent import end_with_parent

NICENESS = 10
"""By how much the priority of the process is lowered."""


def receive_requests(requests: queue.SimpleQueue[Any]) -> None:
    """Read requests, and end this process when there are no more: the parent is gone, whatever is being done here.

    Files are whole at any moment, so that nothing is lost by that.
    """
    try:
        while True:
            requests.put(pickle.load(sys.stdin.buffer))
    except BaseException:  # the end of the input, or half a request at its end
        os._exit(0)


def main() -> int:
    """The child: requests from standard input until it ends, answers to standard output."""
    end_with_parent(int(sys.argv[1]))
    # Ctrl-C reaches all processes of a terminal: the node decides
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(NICENESS)
    limit_malloc_arenas()
    # What a library prints must not end up among the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=receive_requests, args=(requests,), name="requests", daemon=True).start()

    def answer(message: Answer | Done) -> None:
        pickle.dump(message, answers)
        answers.flush()

    try:
        server = ClosureServer(requests.get(), answer)
        warm_up()  # with the defaults: under other limits its small maps may not be comparable
        server.catch_up()
        while True:
            request = requests.get()
            try:
                server.serve(request)
            except Exception as error:  # the next submap may do better
                where = "".join(traceback.format_exception(error))
                answer(Problem(f"{type(request).__name__} failed: please report this\n{where}"))
            answer(Done())
    except BrokenPipeError:
        return 0


if __name__ == "__main__":
    sys.exit(main())
