"""A kernel that is sent cells as a front end sends them."""

import contextlib
from collections.abc import Iterator
from typing import Any

from jupyter_client.manager import start_new_kernel


class Asked:
    """A kernel, and the messages that each cell makes it send."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def run(self, code: str, **metadata: str) -> list[Any]:
        """The messages of a cell, up to its end; a front end gives a ``cellId``, papermill none."""
        content = {"code": code, "silent": False}  # older kernels need both
        sent = self._client.session.msg("execute_request", content, metadata=metadata)
        self._client.shell_channel.send(sent)
        messages: list[Any] = []
        while not messages or messages[-1]["content"].get("execution_state") != "idle":
            message = self._client.get_iopub_msg(timeout=600)
            if message["parent_header"].get("msg_id") == sent["header"]["msg_id"]:
                messages.append(message)
        return messages


@contextlib.contextmanager
def kernel() -> Iterator[Asked]:
    try:
        manager, client = start_new_kernel(kernel_name="python3", startup_timeout=600)
    except RuntimeError:
        # It died: a port that was free when it was chosen was taken by then.
        manager, client = start_new_kernel(kernel_name="python3", startup_timeout=600)
    try:
        yield Asked(client)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
