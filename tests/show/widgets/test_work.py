"""Long work runs in a thread, says how it goes, and stops when it is asked to."""

import threading

from icekit.engine.interrupting import Stop
from icekit.errors import TableNotFound
from icekit.show.widgets.controls import Say, Work


def finished(job: object, *, cancel: bool = False) -> tuple[list[str], list[object], list[str]]:
    """What a job said, gave and ended with."""
    said: list[str] = []
    done: list[object] = []
    ended: list[str] = []
    work = Work(said.append)
    work.start(job, done.append, ended.append)  # type: ignore[arg-type]
    if cancel:
        work.cancel()
    assert work.wait(120)
    return said, done, ended


def test_a_job_says_how_it_goes_and_gives_its_result() -> None:
    def job(say: Say, stop: Stop) -> int:
        say("half")
        return 7

    assert finished(job) == (["half"], [7], [])


def test_a_job_that_is_cancelled_gives_nothing() -> None:
    def job(say: Say, stop: Stop) -> int:
        for _ in range(100):
            stop.sleep(0.1)
        return 7

    assert finished(job, cancel=True) == ([], [], ["Cancelled."])


def test_an_error_after_cancelling_is_no_news() -> None:
    def job(say: Say, stop: Stop) -> int:
        while not stop.is_set:
            pass
        raise RuntimeError("Job cancelled because of a job tag")

    assert finished(job, cancel=True)[2] == ["Cancelled."]


def test_a_known_error_is_its_sentence_and_another_has_its_name() -> None:
    def known(say: Say, stop: Stop) -> int:
        raise TableNotFound("There is no table db.t.")

    def unknown(say: Say, stop: Stop) -> int:
        raise ZeroDivisionError("division by zero\nsecond line")

    assert finished(known)[2] == ["There is no table db.t."]
    assert finished(unknown)[2] == ["ZeroDivisionError: division by zero"]


def test_one_job_at_a_time() -> None:
    go = threading.Event()
    done: list[object] = []
    work = Work(lambda _: None)

    def job(say: Say, stop: Stop) -> int:
        go.wait(120)
        return 1

    assert work.start(job, done.append, done.append)
    assert not work.start(job, done.append, done.append)
    go.set()
    assert work.wait(120)
    assert done == [1]
    assert work.start(job, done.append, done.append)
    work.wait(120)
