"""Keep kernels warm: a notebook after another in one process, each as if the kernel were fresh.

Starting a kernel and importing what the notebook imports takes longer than running it. A kernel
that has run one notebook has all of that; before the next its namespace, history and counter are
reset (``InteractiveShell.reset``), so that the same cells give the same outputs and numbers.
What would be left is what a notebook changes in modules, and the diagnosis changes nothing there.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import nbformat
from jupyter_client.manager import AsyncKernelManager
from jupyter_core.utils import ensure_event_loop, run_sync
from nbclient import NotebookClient
from papermill.clientwrap import PapermillNotebookClient
from papermill.engines import NBClientEngine, papermill_engines

ENGINE = "icekit"
_NAME = "python3"
#: Notebooks that a kernel runs before it is replaced: what may leak stays small.
NOTEBOOKS = 50
_RESET = "get_ipython().reset(new_session=True)"


class Kernel:
    """One process that runs notebooks, one at a time; started when first used, and again when it has died.

    It belongs to the thread that uses it; :meth:`kill` may be called by any.
    """

    def __init__(self, *, reuse: bool = True) -> None:
        self._reuse = reuse
        self._used = 0
        self._is_clean = True
        self.manager: Any = None

    def ready(self, imports: str) -> None:
        """Start the process if there is none, and let it import what notebooks do: that is no table's own time."""
        if self.manager is not None:
            return
        blank = nbformat.v4.new_notebook()  # type: ignore[no-untyped-call]
        with self._client(NotebookClient, blank, _NAME) as client:
            client.start_new_kernel()
            client.start_new_kernel_client()
            client.wait_for_reply(client.kc.execute(imports, silent=True))
        self._is_clean = False

    def execute(self, notebook: Any, kernel_name: str) -> Any:
        """Run what papermill gives an engine; whatever fails ends the process, as nobody knows what state it is in."""
        with self._client(PapermillNotebookClient, notebook, kernel_name) as client:
            if not self._is_clean:
                client.start_new_kernel_client()
                client.wait_for_reply(client.kc.execute(_RESET, silent=True))
            done = client.execute()
        self._is_clean = False
        self._used += 1
        if not self._reuse or self._used >= NOTEBOOKS:
            self.end()
        return done

    @contextlib.contextmanager
    def _client(self, of: type[Any], notebook: Any, kernel_name: str) -> Iterator[Any]:
        if self.manager is None:
            self.manager = AsyncKernelManager(kernel_name=kernel_name)
        client = of(notebook, km=self.manager, kernel_name=kernel_name, startup_timeout=60, timeout=None)
        try:
            yield client
        except BaseException:
            self.end()
            raise
        finally:
            if client.kc is not None:
                client.kc.stop_channels()

    def kill(self) -> None:
        """End the process at once; the notebook that runs in it fails."""
        provisioner = getattr(self.manager, "provisioner", None)
        pid = getattr(provisioner, "pid", None)
        if pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def end(self) -> None:
        """Let go of the process, alive or not."""
        manager, self.manager, self._used, self._is_clean = self.manager, None, 0, True
        if manager is not None:
            with contextlib.suppress(Exception):
                run_sync(manager.shutdown_kernel)(now=True)


class Kernels:
    """A kernel for each thread that asks, and a way to kill them all."""

    def __init__(self, *, reuse: bool = True) -> None:
        self._reuse = reuse
        self._every: list[Kernel] = []

    @contextlib.contextmanager
    def own(self) -> Iterator[Kernel]:
        """A kernel for this thread, which ends with the block; so does the thread's event loop."""
        kernel = Kernel(reuse=self._reuse)
        self._every.append(kernel)
        try:
            yield kernel
        finally:
            kernel.end()
            ensure_event_loop().close()

    def kill(self) -> None:
        """End every process at once, also those at work."""
        for kernel in self._every:
            kernel.kill()


class _Engine(NBClientEngine):  # type: ignore[misc]
    """papermill's own engine, in a kernel that is given."""

    @classmethod
    def execute_managed_notebook(cls, nb_man: Any, kernel_name: str, *, kernel: Kernel, **_: Any) -> Any:
        """Run the notebook's cells as papermill does."""
        return kernel.execute(nb_man, kernel_name)


papermill_engines.register(ENGINE, _Engine)


@contextlib.contextmanager
def limited(kernel: Kernel, seconds: float | None) -> Iterator[threading.Event]:
    """Kill the kernel when the time is over; the event that is yielded tells that it was."""
    over = threading.Event()
    if seconds is None:
        yield over
        return

    done = threading.Event()

    def stop() -> None:
        over.set()
        # Again and again: a kernel that is just being started has no process yet.
        while not done.is_set():
            kernel.kill()
            done.wait(0.2)

    timer = threading.Timer(max(seconds, 0.0), stop)
    timer.daemon = True
    timer.start()
    try:
        yield over
    finally:
        done.set()
        timer.cancel()
