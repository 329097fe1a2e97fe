"""What a step does again and again: a module that is used several times is one name, not one for each of its parts."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

_LONGEST = 64  # names of one use
_LEAST = 6  # names in all: "a, b, a, b" is as well told by itself
_NAMED = 4  # parts of one use


def repeats(names: Sequence[Hashable], *, longest: int = _LONGEST) -> Iterator[tuple[int, int, int]]:
    """Cut a row of names into what repeats and what does not.

    Args:
        names: in the order in which they run; neighbours differ.
        longest: one use has at most so many names.

    Yields:
        Place of the first name, names of one use, and how many uses follow one another; one name, once, where nothing
        repeats. Of all cuts at a place the one that tells of the most names, by the shortest use.
    """
    at = 0
    while at < len(names):
        length, times = 1, 1
        for tried in range(2, min(longest, (len(names) - at) // 2) + 1):
            use, found = names[at : at + tried], 1
            while names[at + found * tried : at + (found + 1) * tried] == use:
                found += 1
            if found > 1 and max(_LEAST - 1, length * times) < found * tried:
                length, times = tried, found
        yield at, length, times
        at += length * times


def name_of_use(labels: Sequence[str]) -> str:
    """What the parts of one use are called together: the module that they are in, or their own names."""
    distinct = list(dict.fromkeys(labels))
    parts = [x.split(".") for x in distinct]
    shared = 0
    while shared < min(map(len, parts)) and len({x[shared] for x in parts}) == 1:
        shared += 1
    if len(distinct) == 1 or shared:
        return ".".join(parts[0][:shared])
    return ", ".join(distinct[:_NAMED]) + (", …" if len(distinct) > _NAMED else "")
