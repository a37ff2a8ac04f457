"""The loop closures in this process, in whatever executor they are given. Nothing is kept on disk."""

from __future__ import annotations

from functools import partial

from gpgmap_ros.closure import LoopCloser
from gpgmap_ros.config import Config
from gpgmap_ros.mapping.submaps import Submap
from gpgmap_ros.slam.closure_messages import Add, Answer, Request, Start, Update
from gpgmap_ros.slam.closure_server import ClosureServer
from gpgmap_ros.slam.graph_view import GraphView
from gpgmap_ros.slam.work_queue import Executor, Receive


class LocalClosures:
    """Serves requests in an executor, and waits with the one that adds a submap where too many wait.

    closer: the pose graph and its closures, to be read once `close` has returned
    """

    def __init__(self, config: Config, receive: Receive, executor: Executor) -> None:
        self._receive, self._executor, self._view = receive, executor, GraphView()
        self._server = ClosureServer(Start(config, None, 0), self._answer)

    @property
    def closer(self) -> LoopCloser:
        return self._server.closer

    def start(self) -> None:
        """There is nothing of earlier runs."""

    def add(self, submap: Submap, stored: bool, own: bool = True) -> None:
        self.ask(Add(submap.id, submap, own))

    def ask(self, request: Request) -> None:
        self._executor.submit(partial(self._server.serve, request))
        self._executor.wait_for_room()

    def wait(self) -> None:
        self._executor.wait()

    def close(self) -> None:
        self._executor.close()

    def _answer(self, answer: Answer) -> None:
        self._receive(self._view.whole(answer) if isinstance(answer, Update) else answer)
