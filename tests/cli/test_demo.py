"""``icekit demo`` shows three sick tables to somebody who has nothing yet."""

from pathlib import Path

import pytest

from tests.child import python
from tests.commands import command


def test_the_demo_needs_nothing_and_touches_only_the_lake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    work = tmp_path / "work"
    for folder in (home, work):
        folder.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    monkeypatch.delenv("ICEKIT_LAKE")
    code = (
        "import sys\nfrom icekit.cli.main import main\nstatus = main(['demo'])\n"
        "heavy = {'pyspark', 'pandas', 'pyiceberg', 'matplotlib'} & set(sys.modules)\n"
        "sys.exit(f'{status} {heavy}' if status or heavy else 0)"
    )
    package = str(Path(__file__).parents[2])
    monkeypatch.setenv("PYTHONPATH", package)
    run = python("-c", code, cwd=work)

    assert run.returncode == 0, run.stderr
    assert [path.name for path in work.iterdir()] == ["lake"]
    assert list(home.iterdir()) == []
    for name in ("unmatched_deletes", "equality_deletes", "small_files"):
        assert f"lab.{name}  (format version 2)  ✖ critical" in run.stdout
    assert "icekit compact lab.small_files --trial" in run.stdout
    assert "Next:  icekit look lab.unmatched_deletes" in run.stdout


@pytest.mark.slow
def test_the_demo_leaves_the_lab_that_is_there_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ICEKIT_LAKE", str(tmp_path))
    status, first = command("demo")
    assert status == 0
    assert "example tables unpacked into" in first
    before = sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*.parquet"))

    status, second = command("demo")
    assert status == 0
    assert "unpacked" not in second
    assert sorted((p, p.stat().st_mtime_ns) for p in tmp_path.rglob("*.parquet")) == before
