"""Read PyIceberg's configuration: the profiles of catalogs, in ``.pyiceberg.yaml`` and in
``PYICEBERG_CATALOG__…``.
"""

import os
import unicodedata
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from icekit.common.errors import ProfileError, causes, name_suggestion, read_or_explain
from icekit.common.secrets import remember_secrets, without_yaml_quotes


def check_configuration() -> None:
    """Raise :class:`~icekit.common.errors.ProfileError` if PyIceberg cannot read its configuration:
    it does so when ``pyiceberg.catalog`` is imported, with an error that quotes it.
    """
    read_or_explain(_profiles, _profile_error)


def profile(profile_name: str, embedded_name: str) -> dict[str, str]:
    """The properties of a profile, which are remembered as secrets where they are."""
    if "://" in profile_name:
        # An address may hold a password, and is not repeated.
        raise ProfileError(
            "A catalog is given by the name of its profile, not by its address. Put the address "
            "into a profile of .pyiceberg.yaml, as its uri."
        )
    profiles = read_or_explain(_profiles, _profile_error)
    properties = profiles.get(profile_name.lower())
    if properties is None:
        names_hint = name_suggestion(
            profile_name, [embedded_name, *profiles], most_names=1
        ) or _all_catalogs_hint(profiles, embedded_name)
        raise ProfileError(
            f"No catalog {profile_name!r} is configured{names_hint} {_search_path_sentence()} Add "
            f"it to .pyiceberg.yaml, or set PYICEBERG_CATALOG__{profile_name.upper()}__URI."
        )
    if not isinstance(properties, Mapping):
        raise ProfileError(
            f"Catalog {profile_name!r} has a value where its properties should be. Correct its "
            "profile in .pyiceberg.yaml, or the variables "
            f"PYICEBERG_CATALOG__{profile_name.upper()}…."
        )
    return {key: str(property_value) for key, property_value in properties.items()}


def no_catalog_message(lake_path: Path) -> str:
    """What to do where no catalog is named and there is no embedded lake at ``lake_path``, in up to
    four lines.
    """
    profile_names = sorted(read_or_explain(_profiles, _profile_error))
    demo_sentence = "No table at hand? `icekit demo` unpacks a few that need maintenance."
    if profile_names:
        message_lines = [
            f"No catalog is named, and there is no embedded lake at {lake_path} (ICEKIT_LAKE).",
            f"Add --catalog with one of {', '.join(profile_names)}."
            if len(profile_names) > 1
            else f"Add --catalog {profile_names[0]}, the only catalog that is configured.",
            demo_sentence,
        ]
    else:
        message_lines = [
            f"No catalog is configured, and there is no embedded lake at {lake_path} "
            "(ICEKIT_LAKE).",
            _search_path_sentence(),
            "To configure one, set PYICEBERG_CATALOG__PROD__URI (and __WAREHOUSE, __TOKEN), then "
            "run `icekit look --catalog prod`.",
            demo_sentence,
        ]
    return "\n".join(message_lines)


def _all_catalogs_hint(profiles: Iterable[str], embedded_name: str) -> str:
    """The names of all catalogs, after a sentence that has named none of them."""
    profile_names = sorted(profiles)
    if not profile_names:
        return f"; the only catalog is {embedded_name}, the embedded one."
    leading_names = ", ".join([embedded_name, *profile_names[:-1]])
    return f"; the catalogs are {leading_names} and {profile_names[-1]}."


def _search_path_sentence() -> str:
    """Where PyIceberg looks for its configuration, in its order, as a sentence."""
    configured_home = os.environ.get("PYICEBERG_HOME")
    search_folders = [f"{configured_home} (PYICEBERG_HOME)"] if configured_home else []
    search_folders += dict.fromkeys([str(Path("~").expanduser()), str(Path.cwd())])
    return (
        f"PyIceberg reads the first .pyiceberg.yaml of these folders: {', '.join(search_folders)}; "
        "and variables PYICEBERG_CATALOG__…."
    )


def _profiles() -> Mapping[str, Any]:
    """What stands under the names of the catalogs; raises PyIceberg's own errors.

    The secrets of all of them are remembered, because PyIceberg reads all of them.
    """
    remember_secrets(_profile_variables())
    from pyiceberg.utils.config import Config

    pyiceberg_config = Config()
    pyiceberg_config.get_known_catalogs()  # refuses a value in their place
    profiles: Any = pyiceberg_config.config.get("catalog") or {}
    _remember_secrets(profiles)
    return profiles  # type: ignore[no-any-return]


def _profile_variables() -> dict[str, str]:
    """The variables from which PyIceberg reads properties, by the names of the properties."""
    return {
        variable_name.rpartition("__")[2].lower().replace("_", "-"): variable_value
        for variable_name, variable_value in os.environ.items()
        if variable_name.lower().startswith("pyiceberg_catalog__")
    }


def _remember_secrets(profiles: Mapping[str, Any]) -> None:
    """Remember the secrets of each profile; the properties of ``auth`` are nested."""
    for properties in profiles.values():
        if isinstance(properties, Mapping):
            remember_secrets(_leaf_properties(properties))


def _leaf_properties(properties: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    values_by_key: dict[str, str] = {}
    for key, property_value in properties.items():
        if isinstance(property_value, Mapping):
            values_by_key |= _leaf_properties(property_value, f"{prefix}{key}.")
        else:
            values_by_key[f"{prefix}{key}"] = str(property_value)
    return values_by_key


def _profile_error(error: Exception) -> ProfileError:
    """The error for a configuration that cannot be read, without a word of it."""
    yaml_problem = getattr(error, "problem", None) or getattr(error, "reason", None)
    # PyIceberg's parser fails at its own error about a character, which is then the context.
    character_error = next((cause for cause in causes(error) if hasattr(cause, "character")), None)
    if character_error is not None:
        problem_text = _character_problem(character_error)
    elif isinstance(error, OSError):
        problem_text = f"{error.filename}: {error.strerror}"
    elif yaml_problem is not None:
        # The parser's own words. It quotes only names there, and the lines elsewhere.
        problem_mark = getattr(error, "problem_mark", None)
        line_text = "" if problem_mark is None else f"line {problem_mark.line + 1}: "
        problem_text = f"{line_text}{without_yaml_quotes(str(yaml_problem))}"
    else:
        problem_text = (
            f"{type(error).__name__}; a key has a value where other keys should stand under it, in "
            "the file or in a variable PYICEBERG_…"
        )
    return ProfileError(
        f"PyIceberg's configuration cannot be read: {problem_text}. Correct .pyiceberg.yaml, or "
        "the variables PYICEBERG_…."
    )


def _character_problem(error: Any) -> str:
    """Which character of a YAML file is not allowed there; ``error`` is that of a YAML reader."""
    code_point = error.character if isinstance(error.character, int) else ord(error.character)
    kind_text = "the control character " if unicodedata.category(chr(code_point)) == "Cc" else ""
    return (
        f"character {error.position + 1:,} of the file is {kind_text}U+{code_point:04X}, which "
        "YAML does not allow"
    )
