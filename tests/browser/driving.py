"""Say what a person does in JupyterLab: open a notebook, run it, and use its controls by their
labels.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Locator, Page, expect

from tests.browser.jupyter import Server

#: Seconds for a notebook's cells, of which Spark's start is the longest on a busy machine.
PATIENCE = 150_000

expect.set_options(timeout=60_000)

_KERNEL_WAITS = (
    "() => window.jupyterapp?.shell?.currentWidget?.sessionContext?.session?.kernel?.status === "
    "'idle'"
)
_ALL_RUN = """() => {
  const prompts = [...document.querySelectorAll('.jp-CodeCell .jp-InputArea-prompt')].map(p => p.textContent);
  return prompts.length > 0 && prompts.every(p => /\\[\\d+\\]/.test(p));
}"""


class Driven:
    """A notebook in JupyterLab."""

    def __init__(self, page: Page, server: Server, name: str) -> None:
        self.page = page
        page.set_default_timeout(PATIENCE)
        page.goto(f"{server.url}/lab/tree/{name}?token={server.token}&reset")
        page.wait_for_selector(".jp-Notebook .jp-CodeCell")
        # A kernel that is still starting would lose a request to run.
        page.wait_for_function(_KERNEL_WAITS, timeout=PATIENCE)
        page.evaluate(
            "() => { window.jupyterapp.commands.execute('application:toggle-left-area'); }"
        )

    def run_all(self) -> None:
        """Run every cell, and wait until each has its number; a cell that fails leaves the others
        without.
        """
        self.page.evaluate(
            "() => { window.jupyterapp.commands.execute('notebook:run-all-cells'); }"
        )
        self.page.wait_for_function(_ALL_RUN, timeout=PATIENCE)

    def run_cell(self, source: str) -> None:
        """Run the cell whose code holds a text."""
        self.cell(source).locator(".jp-InputArea-editor").click()
        self.page.evaluate("() => { window.jupyterapp.commands.execute('notebook:run-cell'); }")

    def cell(self, source: str) -> Locator:
        """The cell whose code holds a text."""
        return self.page.locator(".jp-CodeCell").filter(
            has=self.page.locator(".jp-InputArea", has_text=source)
        )

    def slider(self, label: str) -> Locator:
        """The handle of a slider: a control that arrow keys move."""
        found = self.page.locator(".widget-slider", has=self.page.get_by_text(label, exact=True))
        return found.locator(".noUi-handle").first

    def move(self, label: str, key: str, times: int) -> None:
        """Move a slider by the keyboard."""
        handle = self.slider(label)
        handle.focus()
        for _ in range(times):
            self.page.keyboard.press(key)

    def button(self, name: str) -> Locator:
        """A button by what it says."""
        return self.page.get_by_role("button", name=name, exact=True)

    def picture(self, folder: Path | None, name: str) -> None:
        """The whole notebook as a picture in a folder, if there is one."""
        if folder is None:
            return
        folder.mkdir(parents=True, exist_ok=True)
        height = self.page.evaluate(
            "() => Math.ceil([...document.querySelectorAll('.jp-Notebook .jp-Cell')].reduce((h, "
            "c) => h + c.getBoundingClientRect().height + 12, 0))"
        )
        with self._in_a_window(1400, min(int(height) + 260, 16_000)):
            self.page.screenshot(path=folder / name)

    def pictured(self, path: Path, first: str, last: str, most: int) -> None:
        """Some cells of the notebook, from one to another, as a picture of at most so many
        pixels.
        """
        with self._in_a_window(1180, 14_000):
            top, bottom = self.cell(first).bounding_box(), self.cell(last).bounding_box()
            assert top is not None
            assert bottom is not None
            height = min(bottom["y"] + bottom["height"] - top["y"], most)
            self.page.screenshot(path=path, clip={**top, "height": height})

    @contextmanager
    def _in_a_window(self, width: int, height: int) -> Iterator[None]:
        """Show the notebook from its top in a window of another size for a while."""
        before = self.page.viewport_size
        self.page.set_viewport_size({"width": width, "height": height})
        self.page.evaluate(
            "() => document.querySelectorAll('.jp-WindowedPanel-outer').forEach(e => { "
            "e.scrollTop = 0; })"
        )
        self.page.wait_for_timeout(700)
        yield
        if before:
            self.page.set_viewport_size(before)


__all__ = ["PATIENCE", "Driven", "expect"]


@contextmanager
def opened(chromium: Browser, server: Server, name: str) -> Iterator[Driven]:
    """A notebook in a page of its own, all its cells run."""
    page = chromium.new_page(viewport={"width": 1400, "height": 1000})
    driven = Driven(page, server, name)
    driven.run_all()
    yield driven
    page.close()
