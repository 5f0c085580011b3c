"""Python calls methods of icekit's Java classes by name, which no type checker sees."""

import re
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "icekit"
JAVA_FILES = sorted((PACKAGE / "engine" / "java").glob("*.java"))
PUBLIC_METHOD = re.compile(
    r"^  public (?:static |final |synchronized )*(?:<[^>]+> )?[\w<>\[\], .?]+ (\w+)\s*\(",
    re.MULTILINE,
)
#: Spark calls these.
LISTENER_METHODS = {"onSuccess", "onFailure"}


def test_every_public_method_of_a_java_class_is_called() -> None:
    """After a method was renamed on one side only, nobody calls it any more."""
    python_text = "\n".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    java_text = "\n".join(path.read_text(encoding="utf-8") for path in JAVA_FILES)
    calls_in_java = PUBLIC_METHOD.sub("", java_text)
    public_names = {match[1] for match in PUBLIC_METHOD.finditer(java_text)}

    uncalled_names = [
        name
        for name in sorted(public_names - LISTENER_METHODS)
        if f".{name}(" not in python_text and not re.search(rf"(?<!\w){name}\(", calls_in_java)
    ]

    assert len(public_names) > 20
    assert uncalled_names == []
