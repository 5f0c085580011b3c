"""What README, docs/ and the command line say is what there is."""

import ast
import re
import runpy
import shlex
from pathlib import Path

import pytest

import icekit
from icekit.api import Lake
from icekit.engine.spark_conf import RUNTIMES
from icekit.health.diagnose import SYMPTOMS, diagnose
from icekit.show.card import card
from tests.commands import command as run_command
from tests.commands import parsed

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
TEXTS = {str(page.relative_to(ROOT)): page.read_text(encoding="utf-8") for page in PAGES}
README = TEXTS["README.md"]

each_page = pytest.mark.parametrize("page", TEXTS)


def blocks(text: str, *languages: str) -> list[str]:
    return [
        block
        for language, block in re.findall(r"^```(\w*)\n(.*?)^```$", text, re.S | re.M)
        if language in languages
    ]


@each_page
def test_every_file_and_picture_that_a_page_links_to_exists(page: str) -> None:
    prose = re.sub(r"```.*?```", "", TEXTS[page], flags=re.S)
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", prose):
        assert target.startswith("https://") or ((ROOT / page).parent / target).exists(), target


def test_every_file_and_name_that_contributing_gives_exists() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    folders = [ROOT / name for name in ("icekit", "tests", "rigs", "scripts", "notebooks", "docs")]
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    paths = [f"/{path.relative_to(ROOT)}" for path in (*files, *ROOT.glob("*.*"))]
    sources = [path for path in files if path.suffix in {".py", ".java"}]
    words = {word for path in sources for word in re.findall(r"\w+", path.read_text("utf-8"))}

    for name in re.findall(r"`([A-Za-z_][\w./-]*)(?:`|\()", text):
        if re.search(r"\.(py|java|html|json|ipynb|txt|toml)$", name):
            assert any(path.endswith(f"/{name}") for path in paths), name
        elif "/" not in name and "-" not in name:
            assert words.issuperset(name.split(".")), name


@each_page
def test_every_section_that_a_page_links_to_exists(page: str) -> None:
    for target, section in re.findall(r"\]\(([^)#]*)#([^)]+)\)", TEXTS[page]):
        text = ((ROOT / page).parent / target).read_text() if target else TEXTS[page]
        headings = {
            re.sub(r"[^\w -]", "", title).strip().lower().replace(" ", "-")
            for title in re.findall(r"^#+ (.*)$", text, re.M)
        }
        assert section in headings, target


@each_page
def test_option_tables_say_what_the_help_says(page: str) -> None:
    updated = runpy.run_path(str(ROOT / "scripts" / "option-tables.py"))["updated"]

    assert updated(TEXTS[page]) == TEXTS[page], "run scripts/option-tables.py"


def test_the_support_matrix_has_every_spark_that_icekit_accepts_and_readme_agrees() -> None:
    matrix = runpy.run_path(str(ROOT / "scripts" / "support-matrix.py"))
    rows = matrix["rows_of"](TEXTS["docs/limits.md"])

    assert {(spark.rpartition(".")[0], iceberg) for spark, iceberg, *_ in rows} >= {
        (spark, newest) for spark, (_, newest) in RUNTIMES.items()
    }
    assert matrix["rows_of"](README, matrix["SHORT"]) == matrix["shortened"](rows)


@pytest.mark.parametrize("page", ["README.md", "docs/findings.md"])
def test_every_symptom_is_listed_and_no_other(page: str) -> None:
    rows = [line for line in TEXTS[page].splitlines() if line.startswith("|")]
    listed = {cell for line in rows for cell in re.findall(r"\b[a-z0-9]+(?:_[a-z0-9]+)+\b", line)}

    assert listed == set(SYMPTOMS)


def test_findings_are_counted() -> None:
    assert f"icekit looks for {len(SYMPTOMS)} problems." in TEXTS["docs/findings.md"]


def test_the_map_of_the_package_names_every_wing_and_no_other() -> None:
    wings = {
        p.name for p in (ROOT / "icekit").iterdir() if p.is_dir() and (p / "__init__.py").exists()
    }

    assert set(re.findall(r"^  (\w+)/ ", TEXTS["docs/development.md"], re.M)) == wings


def test_the_readme_is_short() -> None:
    assert len(re.sub(r"```.*?```", "", README, flags=re.S).split()) < 800


# In blocks of shell and in `code`, where a sentence's own icekit is not.
COMMANDS = sorted(
    {
        command
        for text in TEXTS.values()
        for line in [
            *"\n".join(blocks(text, "", "sh")).splitlines(),
            *re.findall(r"`(icekit [a-z][^`]*)`", text),
        ]
        for command in re.findall(r"^(?:\$ )?(icekit [a-z].*)", line)
    }
)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_one_with_its_options(command: str) -> None:
    words = shlex.split(command, comments=True)[1:]
    if ">" in words:
        words = words[: words.index(">")]

    # A sentence that names a command, and no table for it.
    if "--" not in command and not any("." in word for word in words):
        words = [word for word in words if word.islower()]
        assert run_command(*words, "--help")[0] == 0
    else:
        parsed(words)


def test_every_make_target_that_is_named_is_one() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M))
    shell = [line for text in TEXTS.values() for line in "\n".join(blocks(text, "sh")).splitlines()]
    named = {
        target for text in [*TEXTS.values()] for target in re.findall(r"`make\s([\w-]+)`", text)
    }

    assert (
        named | {target for line in shell for target in re.findall(r"^make ([\w-]+)", line)}
        <= targets
    )


@each_page
def test_every_statement_of_python_reads_and_every_verb_exists(page: str) -> None:
    code = "\n".join(blocks(TEXTS[page], "python"))
    ast.parse(code)

    for verb in re.findall(
        r"\blake\.(\w+)", code + "\n".join(re.findall(r"`(lake\.[^`]*)`", TEXTS[page]))
    ):
        assert hasattr(icekit.Lake, verb), verb


def test_the_reference_has_all_that_is_public() -> None:
    described = set(re.findall(r"auto(?:function|class):: icekit\.(\w+)", TEXTS["docs/api.md"]))

    assert described == set(icekit.__all__)


def test_the_wheel_that_is_installed_has_the_version_of_the_package() -> None:
    named = {name for text in TEXTS.values() for name in re.findall(r"icekit-([\d.]+)-py3", text)}

    assert named == {icekit.__version__}


@pytest.mark.parametrize(
    "picture", sorted((DOCS / "images").glob("*.png")), ids=lambda path: path.name
)
def test_a_picture_is_small_and_is_shown(picture: Path) -> None:
    assert picture.stat().st_size < 300_000
    assert any(f"images/{picture.name})" in text for text in TEXTS.values())


def wording(text: str) -> str:
    """A text without its figures, times and line breaks."""
    without_times = re.sub(r"^(snapshot|history) .*(\n {12}.*)*", r"\1", text, flags=re.M)
    return " ".join(
        re.sub(r"[\d,.]+", "#", without_times).replace("▲", "").replace("✖", "").split()
    )


@pytest.mark.spark
@pytest.mark.lab("small_files")
def test_look_in_the_readme_is_what_look_prints(lake: Lake) -> None:
    facts = lake.observe("lab.small_files")
    [printed] = [
        block for block in blocks(README, "") if block.startswith("$ icekit look lab.small_files\n")
    ]

    shown = card(facts, diagnose(facts, session_conf=lake.session_conf()), width=80)

    assert wording(printed.partition("\n")[2]) == wording(shown)
