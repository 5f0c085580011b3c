"""Read files that people write: as text, and only up to a size."""

from pathlib import Path

from icekit.common.errors import ParameterError, first_line
from icekit.common.units import size


def bounded_text(path: Path, most_bytes: int, advice: str) -> str:
    """The text of a file of at most this many bytes; of a larger one, no more is read.

    Raises :class:`~icekit.common.errors.ParameterError`, which ends with ``advice``, for a
    larger file, and for one that cannot be read as text.
    """
    try:
        with path.open("rb") as file:
            content_bytes = file.read(most_bytes + 1)
        if len(content_bytes) <= most_bytes:
            return content_bytes.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ParameterError(f"{path} cannot be read ({first_line(error)}). {advice}") from None
    raise ParameterError(f"{path} is larger than {size(most_bytes)}. {advice}")
