"""What rclpy's lifecycle node leaves to its user: failures that are said, invalid transitions, a complete end."""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable
from typing import Any

from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn

try:
    from rclpy._rclpy_pybind11 import RCLError as RCLError
except ImportError:  # the name of the C extension is rclpy's own business
    RCLError = RuntimeError

Callback = Callable[[Any, LifecycleState], Any]


def succeeds(callback: Callback) -> Callback:
    """A transition callback that returns nothing succeeds; one that raises fails, and says why (rclpy would not)."""

    @functools.wraps(callback)
    def wrapped(node: LifecycleNode, state: LifecycleState) -> TransitionCallbackReturn:
        try:
            callback(node, state)
        except Exception as error:  # the state machine needs an answer, whatever happened
            node.get_logger().error(f"{callback.__name__} failed: {error}")
            node.get_logger().debug(traceback.format_exc())
            node.failed_callbacks += 1
            return TransitionCallbackReturn.FAILURE
        return TransitionCallbackReturn.SUCCESS

    return wrapped


def refuse_invalid_transitions(node: LifecycleNode) -> None:
    """Answer a transition that is not possible now with success = false.

    rclpy lets the error out of the executor, which ends the node and leaves the caller without an answer.
    """
    service = node._service_change_state
    change_state = service.callback

    def guarded(request: Any, response: Any) -> Any:
        try:
            return change_state(request, response)
        except RCLError:
            asked = request.transition.label or request.transition.id
            node.get_logger().warning(
                f"transition '{asked}' refused: it is not possible in the present state"
            )
            response.success = False
            return response
        except Exception as error:  # rclpy's state machine is not ours: an answer is due all the same
            node.get_logger().error(f"transition failed: {error}\n{traceback.format_exc()}")
            response.success = False
            return response

    service.callback = guarded


def release_state_machine(node: LifecycleNode) -> None:
    """To be called after destroy_node, which forgets the state machine.

    As long as that lives, so does the node's DDS participant, and a process that ends then leaves the participant's
    shared memory behind (35 MB with fastdds_large_messages.xml) until the next boot.
    """
    node._state_machine.destroy_when_not_in_use()
