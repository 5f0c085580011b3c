"""Long work runs in a thread, says how it goes, and stops when it is asked to."""

import threading

from icekit.common.errors import TableNotFound
from icekit.engine.interrupting import Stop
from icekit.show import widgets
from icekit.show.widgets.controls import Progress, Say


def finished(view: widgets.View, job: object, *, cancel: bool = False) -> str:
    """What is shown after a job."""
    progress = Progress(view, "nothing was changed.")
    progress.run("Working", job, lambda result: (f"got {result}", "fine"))  # type: ignore[arg-type]
    if cancel:
        progress.cancel.click()
    assert progress.wait(120)
    assert view.held == ""
    assert progress.cancel.disabled
    return str(progress.log.value)


def test_a_job_says_how_it_goes_and_gives_its_result(view: widgets.View) -> None:
    def job(say: Say, stop: Stop) -> int:
        say("half")
        return 7

    shown = finished(view, job)
    assert shown.index("Working …") < shown.index("half") < shown.index("got 7")


def test_a_job_that_is_cancelled_gives_nothing_and_an_error_after_that_is_no_news(
    view: widgets.View,
) -> None:
    def heeding(say: Say, stop: Stop) -> int:
        for _ in range(100):
            stop.sleep(0.1)
        return 7

    def failing(say: Say, stop: Stop) -> int:
        while not stop.is_set:
            pass
        raise RuntimeError("Job cancelled because of a job tag")

    for job in (heeding, failing):
        shown = finished(view, job, cancel=True)
        assert "Cancelled: nothing was changed." in shown
        assert "got" not in shown
        assert "job tag" not in shown


def test_a_known_error_is_its_sentence_and_another_has_its_name(view: widgets.View) -> None:
    def known(say: Say, stop: Stop) -> int:
        raise TableNotFound("There is no table db.t.")

    def unknown(say: Say, stop: Stop) -> int:
        raise ZeroDivisionError("division by zero\nsecond line")

    assert ">There is no table db.t.<" in finished(view, known)
    assert ">ZeroDivisionError: division by zero<" in finished(view, unknown)


def test_one_job_at_a_time(view: widgets.View) -> None:
    go = threading.Event()
    done: list[int] = []
    progress = Progress(view, "")

    def job(say: Say, stop: Stop) -> int:
        go.wait(120)
        return 1

    def end(result: int) -> tuple[str, str]:
        done.append(result)
        return "", "fine"

    for _ in range(2):
        progress.run("Working", job, end)
    go.set()
    assert progress.wait(120)
    assert done == [1]
    progress.run("Working", job, end)
    assert progress.wait(120)
    assert done == [1, 1]
