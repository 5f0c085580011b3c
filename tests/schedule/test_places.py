"""What a policy says of places and receivers is checked before a pass has done its work, and nothing is made by that."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from icekit.cli.main import main
from icekit.errors import EXIT_HEALTHY, EXIT_MISCONFIGURED, ParameterError
from icekit.schedule.alerts import check_places, check_receivers
from icekit.schedule.reading import PolicyError, read_policy

RULES = "tables:\n  - match: '**'\n"


def written(folder: Path, text: str) -> Path:
    path = folder / "policy.yaml"
    path.write_text(f"version: 1\n{text}{RULES}")
    return path


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("output: taken\n", "output: .*taken is a file, not a folder"),
        ("output: taken/below\n", "output: .*below cannot be created, because .*taken is a file"),
        ("ledger: folder\n", "ledger: .*folder is a folder, not a file"),
        ("history: folder\n", "history: .*folder is a folder"),
        ("state: taken/x.db\n", "state: .*x.db cannot be created"),
        ("junit: folder\n", r"junit: .*folder is a folder"),
        (f"output: {'x' * 300}\n", "output: .*cannot be used"),
    ],
)
def test_a_place_that_cannot_be_written_is_refused_by_its_key(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "taken").touch()
    (tmp_path / "folder").mkdir()

    with pytest.raises(ParameterError, match=said):
        check_places(read_policy(written(tmp_path, text)))


def test_a_database_needs_its_folder_too_and_a_home_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory() as made:
        home = Path(made)
        monkeypatch.setenv("HOME", made)
        for name in ("shut", "open"):
            (home / name).mkdir()
            (home / name).chmod(0o777)
            (home / name / "x.db").touch()
            (home / name / "x.db").chmod(0o666)
        (home / "shut").chmod(0o555)
        home.chmod(0o555)
        policy = read_policy(written(home / "open", "ledger: x.db\n"))
        before = os.geteuid()
        try:
            # Root may write everywhere.
            os.seteuid(before or 65534)
            check_places(policy.model_copy(update={"output": home / "open", "ledger": "~/open/x.db"}))
            for key in ("ledger", "history", "state"):
                there = home / "shut" / "x.db"
                with pytest.raises(ParameterError, match=f"^{key}: .*shut is not writable, and SQLite needs files next to x.db"):
                    check_places(policy.model_copy(update={"output": home / "open", key: there if key == "state" else "~/shut/x.db"}))
        finally:
            os.seteuid(before)
            home.chmod(0o755)


def test_places_that_are_not_there_yet_are_fine_and_are_not_made(tmp_path: Path) -> None:
    check_places(read_policy(written(tmp_path, "output: a/b\nledger: c/d.db\nhistory: table\n")))

    assert [path.name for path in tmp_path.iterdir()] == ["policy.yaml"]


def test_an_address_is_checked_as_far_as_its_variables_are_set(tmp_path: Path) -> None:
    of = "notify:\n  - name: ops\n    to: {}\n"

    with pytest.raises(ParameterError, match="Receiver ops has no address that a message can be posted to"):
        check_receivers(read_policy(written(tmp_path, of.format("nonsense://here"))), {})
    with pytest.raises(ParameterError, match="Receiver ops has no address that a message can be posted to"):
        check_receivers(read_policy(written(tmp_path, of.format("nonsense://${TOKEN}"))), {})
    assert check_receivers(read_policy(written(tmp_path, of.format("http://localhost"))), {}) == []
    said = check_receivers(read_policy(written(tmp_path, of.format("http://localhost/${TOKEN}"))), {})
    assert said == ["The address of ops was not checked: TOKEN is not set here."]


@pytest.mark.parametrize("text", ["output: taken\n", "notify:\n  - name: ops\n    to: nonsense://here\n"])
def test_the_policy_command_refuses_what_a_pass_could_not_use(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    (tmp_path / "taken").touch()

    assert main(["schedule", "check", str(written(tmp_path, text))]) == EXIT_MISCONFIGURED
    assert "icekit: " in capsys.readouterr().err
    assert main(["schedule", "run", str(written(tmp_path, text)), "--dry-run"]) == EXIT_MISCONFIGURED
    assert main(["schedule", "check", str(written(tmp_path, ""))]) == EXIT_HEALTHY


@pytest.mark.parametrize(
    ("section", "said"),
    [("where: id = 1 -- all", "it has a comment"), ("where: ''", "it is empty"), ("batch_bytes: lots", "'lots' is not a size")],
)
def test_what_a_conversion_is_asked_is_checked_as_far_as_it_can_be_without_the_table(tmp_path: Path, section: str, said: str) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(f"version: 1\n{RULES}    convert:\n      {section}\n")

    with pytest.raises(PolicyError, match=said):
        read_policy(path)


@pytest.mark.parametrize("given", [".nan", ".inf", "-1.0", "0.0", "0 minutes", "0", "1e300", "soon", f"{'9' * 400} days"])
def test_a_timeout_that_is_no_length_of_time_is_refused(tmp_path: Path, given: str) -> None:
    with pytest.raises(PolicyError, match="timeout: "):
        read_policy(written(tmp_path, f"timeout: {given}\n"))
