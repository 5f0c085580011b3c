"""Read PyIceberg's configuration: the profiles of catalogs, in ``.pyiceberg.yaml`` and in
``PYICEBERG_CATALOG__…``.
"""

import os
import unicodedata
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from icekit.common.errors import ProfileError, causes, nearest, read_or_explain
from icekit.common.secrets import remember, unquoted_yaml


def check_configuration() -> None:
    """Raise :class:`~icekit.common.errors.ProfileError` if PyIceberg cannot read its configuration:
    it does so when ``pyiceberg.catalog`` is imported, with an error that quotes it.
    """
    read_or_explain(_profiles, _profile_error)


def profile(name: str, embedded: str) -> dict[str, str]:
    """The properties of a profile, which are remembered as secrets where they are."""
    if "://" in name:
        # An address may hold a password, and is not repeated.
        raise ProfileError(
            "A catalog is given by the name of its profile, not by its address. Put the address "
            "into a profile of .pyiceberg.yaml, as its uri."
        )
    profiles = read_or_explain(_profiles, _profile_error)
    properties = profiles.get(name.lower())
    if properties is None:
        hint = nearest(name, [embedded, *profiles], count=1) or _all_catalogs(profiles, embedded)
        raise ProfileError(
            f"No catalog {name!r} is configured{hint} {_search_path_sentence()} Add it to "
            f".pyiceberg.yaml, or set PYICEBERG_CATALOG__{name.upper()}__URI."
        )
    if not isinstance(properties, Mapping):
        raise ProfileError(
            f"Catalog {name!r} has a value where its properties should be. Correct its profile in "
            f".pyiceberg.yaml, or the variables PYICEBERG_CATALOG__{name.upper()}…."
        )
    return {key: str(value) for key, value in properties.items()}


def no_catalog_message(lake: Path) -> str:
    """What to do where no catalog is named and there is no embedded lake at ``lake``, in up to four
    lines.
    """
    profiles = sorted(read_or_explain(_profiles, _profile_error))
    demo_sentence = "No table at hand? `icekit demo` unpacks a few that need maintenance."
    if profiles:
        lines = [
            f"No catalog is named, and there is no embedded lake at {lake} (ICEKIT_LAKE).",
            f"Add --catalog with one of {', '.join(profiles)}."
            if len(profiles) > 1
            else f"Add --catalog {profiles[0]}, the only catalog that is configured.",
            demo_sentence,
        ]
    else:
        lines = [
            f"No catalog is configured, and there is no embedded lake at {lake} (ICEKIT_LAKE).",
            _search_path_sentence(),
            "To configure one, set PYICEBERG_CATALOG__PROD__URI (and __WAREHOUSE, __TOKEN), then "
            "run `icekit look --catalog prod`.",
            demo_sentence,
        ]
    return "\n".join(lines)


def _all_catalogs(profiles: Iterable[str], embedded: str) -> str:
    """The names of all catalogs, after a sentence that has named none of them."""
    names = sorted(profiles)
    if not names:
        return f"; the only catalog is {embedded}, the embedded one."
    return f"; the catalogs are {', '.join([embedded, *names[:-1]])} and {names[-1]}."


def _search_path_sentence() -> str:
    """Where PyIceberg looks for its configuration, in its order, as a sentence."""
    home = os.environ.get("PYICEBERG_HOME")
    folders = [f"{home} (PYICEBERG_HOME)"] if home else []
    folders += dict.fromkeys([str(Path("~").expanduser()), str(Path.cwd())])
    return (
        f"PyIceberg reads the first .pyiceberg.yaml of these folders: {', '.join(folders)}; and "
        "variables PYICEBERG_CATALOG__…."
    )


def _profiles() -> Mapping[str, Any]:
    """What stands under the names of the catalogs; raises PyIceberg's own errors.

    The secrets of all of them are remembered, because PyIceberg reads all of them.
    """
    remember(_profile_variables())
    from pyiceberg.utils.config import Config

    config = Config()
    config.get_known_catalogs()  # refuses a value in their place
    profiles: Any = config.config.get("catalog") or {}
    _remember_secrets(profiles)
    return profiles  # type: ignore[no-any-return]


def _profile_variables() -> dict[str, str]:
    """The variables from which PyIceberg reads properties, by the names of the properties."""
    return {
        name.rpartition("__")[2].lower().replace("_", "-"): value
        for name, value in os.environ.items()
        if name.lower().startswith("pyiceberg_catalog__")
    }


def _remember_secrets(profiles: Mapping[str, Any]) -> None:
    """Remember the secrets of each profile; the properties of ``auth`` are nested."""
    for properties in profiles.values():
        if isinstance(properties, Mapping):
            remember(_leaves(properties))


def _leaves(properties: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    leaf_values: dict[str, str] = {}
    for key, value in properties.items():
        if isinstance(value, Mapping):
            leaf_values |= _leaves(value, f"{prefix}{key}.")
        else:
            leaf_values[f"{prefix}{key}"] = str(value)
    return leaf_values


def _profile_error(error: Exception) -> ProfileError:
    """The error for a configuration that cannot be read, without a word of it."""
    problem = getattr(error, "problem", None) or getattr(error, "reason", None)
    # PyIceberg's parser fails at its own error about a character, which is then the context.
    character_error = next((each for each in causes(error) if hasattr(each, "character")), None)
    if character_error is not None:
        problem_text = _forbidden_character(character_error)
    elif isinstance(error, OSError):
        problem_text = f"{error.filename}: {error.strerror}"
    elif problem is not None:
        # The parser's own words. It quotes only names there, and the lines elsewhere.
        problem_mark = getattr(error, "problem_mark", None)
        line_text = "" if problem_mark is None else f"line {problem_mark.line + 1}: "
        problem_text = f"{line_text}{unquoted_yaml(str(problem))}"
    else:
        problem_text = (
            f"{type(error).__name__}; a key has a value where other keys should stand under it, in "
            "the file or in a variable PYICEBERG_…"
        )
    return ProfileError(
        f"PyIceberg's configuration cannot be read: {problem_text}. Correct .pyiceberg.yaml, or "
        "the variables PYICEBERG_…."
    )


def _forbidden_character(error: Any) -> str:
    """Which character of a YAML file is not allowed there; ``error`` is that of a YAML reader."""
    character = error.character if isinstance(error.character, int) else ord(error.character)
    kind_text = "the control character " if unicodedata.category(chr(character)) == "Cc" else ""
    return (
        f"character {error.position + 1:,} of the file is {kind_text}U+{character:04X}, which YAML "
        "does not allow"
    )
