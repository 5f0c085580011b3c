"""Change what the footer of a Puffin file says about its blobs; the blobs stay where they are
(Puffin spec, "File structure").
"""

import json
import struct
from collections.abc import Callable
from typing import Any

MAGIC = b"PFA1"
# The size of the payload, flags, and the magic number, which end the file.
_TRAILER = struct.Struct("<iI4s")
_IS_COMPRESSED = 1


def rewrite_footer(raw: bytes, change_footer: Callable[[dict[str, Any]], None]) -> bytes:
    """The same Puffin file after ``change_footer`` to the JSON of its footer; raises ValueError for
    another file, and for a footer that is compressed.
    """
    if len(raw) < len(MAGIC) + _TRAILER.size or not raw.startswith(MAGIC):
        raise ValueError("not a Puffin file")
    payload_size, flags, end_magic = _TRAILER.unpack(raw[-_TRAILER.size :])
    payload_offset = len(raw) - _TRAILER.size - payload_size
    if end_magic != MAGIC or raw[payload_offset - len(MAGIC) : payload_offset] != MAGIC:
        raise ValueError("the footer of a Puffin file is cut off or corrupt")
    if flags & _IS_COMPRESSED:
        raise ValueError("the footer of a Puffin file is compressed, which icekit does not read")
    footer = json.loads(raw[payload_offset : payload_offset + payload_size])
    change_footer(footer)
    new_payload = json.dumps(footer, separators=(",", ":")).encode()
    return raw[:payload_offset] + new_payload + _TRAILER.pack(len(new_payload), flags, MAGIC)
