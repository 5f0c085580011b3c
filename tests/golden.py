"""Golden files: what a result looks like, reviewed as a document. ``pytest --update-golden`` writes
them again.
"""

import dataclasses
import re
from enum import Enum
from pathlib import Path

import yaml

FOLDER = Path(__file__).with_name("golden")


@dataclasses.dataclass(frozen=True)
class Golden:
    """Compares a text with ``tests/golden/NAME``. Of a page, styles and scripts are left out, and
    each tag has a line.
    """

    update: bool

    def __call__(self, name: str, text: str) -> None:
        path = FOLDER / name
        if path.suffix == ".html":
            text = re.sub(
                r'<(style|script)\b.*?</\1>| onclick="[^"]*"',
                "",
                text.replace("\N{NO-BREAK SPACE}", " "),
                flags=re.DOTALL,
            )
            text = re.sub(r"\s*\n\s*", "\n", text.replace("><", ">\n<"))
        text = text.strip() + "\n"
        if self.update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert text == path.read_text(encoding="utf-8")

    def fields(self, name: str, record: object) -> None:
        """Compare all fields of a dataclass, as YAML."""
        fields = {f.name: _plain(getattr(record, f.name)) for f in dataclasses.fields(record)}  # type: ignore[arg-type]
        self(name, yaml.safe_dump(fields, allow_unicode=True, sort_keys=False, width=10_000))


def _plain(value: object) -> object:
    if isinstance(value, Enum):
        return value.name
    return list(value) if isinstance(value, tuple) else value
