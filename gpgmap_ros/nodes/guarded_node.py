"""A node that no callback can end: each answers, whatever happens inside it."""

from __future__ import annotations

import functools
import inspect
import traceback
from collections.abc import Callable
from typing import Any

from rcl_interfaces.msg import SetParametersResult
from rclpy.lifecycle import LifecycleNode
from rclpy.publisher import Publisher
from rclpy.service import Service
from rclpy.subscription import Subscription
from rclpy.timer import Timer

from gpgmap_ros.nodes.health import Warnings

EVENTS = ("deadline", "liveliness", "incompatible_qos", "incompatible_type", "matched", "message_lost")

Callback = Callable[..., Any]


class GuardedNode(LifecycleNode):
    """Wraps every callback that is given to it: an exception is logged with its traceback, counted and survived.

    rclpy lets an exception of a callback out of the executor, which ends the node. A service answers with what went
    wrong (`success` false and `message`, where it has them), a change of parameters is refused with the reason.
    failed_callbacks: how many there were
    """

    failed_callbacks = 0

    def guard(
        self, callback: Callback, name: str, answer: Callable[[tuple[Any, ...], str], Any] = lambda *_: None
    ) -> Callback:
        """`callback`, which returns `answer(arguments, reason)` where it fails. name: for the log."""
        if getattr(callback, "is_guarded", False):
            return callback

        def failed(arguments: tuple[Any, ...], error: Exception) -> Any:
            reason = f"{name} failed: {type(error).__name__}: {error}"
            self._report(name, reason, error)
            return answer(arguments, reason)

        if inspect.iscoroutinefunction(callback):

            @functools.wraps(callback)
            async def wrapper(*arguments: Any) -> Any:
                try:
                    return await callback(*arguments)
                except Exception as error:
                    return failed(arguments, error)
        else:

            @functools.wraps(callback)
            def wrapper(*arguments: Any) -> Any:
                try:
                    return callback(*arguments)
                except Exception as error:
                    return failed(arguments, error)

        wrapper.is_guarded = True  # type: ignore[attr-defined]
        return wrapper

    def survive(self, error: Exception) -> None:
        """Report what came out of the executor itself, such as a message that could not be decoded."""
        self._report("executor", f"a message or request is lost: {type(error).__name__}: {error}", error)

    def _report(self, name: str, reason: str, error: Exception) -> None:
        self.failed_callbacks += 1
        if not hasattr(self, "_failures"):
            self._failures = Warnings(self)
        where = "".join(traceback.format_exception(error))
        self._failures.warn(name, f"{reason}\n{where}")

    # ------------------------------------------------ everything that takes a callback

    def create_service(
        self, srv_type: Any, srv_name: str, callback: Callback, *args: Any, **kwargs: Any
    ) -> Service:
        callback = self.guard(callback, srv_name, _failed_response)
        return super().create_service(srv_type, srv_name, callback, *args, **kwargs)

    def create_subscription(
        self, msg_type: Any, topic: str, callback: Callback, *args: Any, **kwargs: Any
    ) -> Subscription:
        self._guard_events(kwargs.get("event_callbacks"), topic)
        callback = self.guard(callback, topic)
        return super().create_subscription(msg_type, topic, callback, *args, **kwargs)

    def create_publisher(self, msg_type: Any, topic: str, *args: Any, **kwargs: Any) -> Publisher:
        self._guard_events(kwargs.get("event_callbacks"), topic)
        return super().create_publisher(msg_type, topic, *args, **kwargs)

    def create_timer(self, timer_period_sec: float, callback: Callback, *args: Any, **kwargs: Any) -> Timer:
        name = getattr(callback, "__name__", "a timer")
        return super().create_timer(timer_period_sec, self.guard(callback, name), *args, **kwargs)

    def add_on_set_parameters_callback(self, callback: Callback) -> None:
        super().add_on_set_parameters_callback(self.guard(callback, "set_parameters", _refusal))

    def _guard_events(self, events: Any, topic: str) -> None:
        for name in EVENTS:
            if callable(callback := getattr(events, name, None)):
                setattr(events, name, self.guard(callback, f"{name} of {topic}"))


def _failed_response(arguments: tuple[Any, ...], reason: str) -> Any:
    response = type(arguments[1])()  # what the callback has put into it so far may be half of an answer
    if hasattr(response, "success"):
        response.success = False
    if hasattr(response, "message"):
        response.message = reason
    return response


def _refusal(arguments: tuple[Any, ...], reason: str) -> SetParametersResult:
    return SetParametersResult(successful=False, reason=reason)
