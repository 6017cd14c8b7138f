"""Valid JSON-like data with a few things wrong in it."""

import copy

from hypothesis import strategies as st

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**20), 10**20),
    st.floats(),
    st.text(max_size=12),
    st.sampled_from(["", ".", "..", "../../x", "[red]", "\x1b[2J", "a" * 5000, "\u202e", "{model}", "$HOME", "1e999"]),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8) | st.integers(), inner, max_size=3),
    max_leaves=6,
)


def places(value, place=()):
    """The path of every entry inside a value."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, entry in entries:
        yield (*place, key)
        yield from places(entry, (*place, key))


@st.composite
def mutated(draw, valid, values=VALUES, most=3):
    """The valid value with up to `most` entries replaced, taken away, added or put elsewhere."""
    value = copy.deepcopy(valid)
    for _ in range(draw(st.integers(1, most))):
        found = list(places(value))
        if not found:
            break
        *way, last = draw(st.sampled_from(found))
        holder = value
        for step in way:
            holder = holder[step]
        match draw(st.sampled_from(("replace", "remove", "add", "copy"))):
            case "replace":
                holder[last] = draw(values)
            case "remove":
                del holder[last]
            case "add" if isinstance(holder, dict):
                holder[draw(st.text(max_size=10))] = draw(values)
            case "add":
                holder.insert(last, draw(values))
            case "copy":
                source = value
                for step in draw(st.sampled_from(found)):
                    if not isinstance(source, dict | list):
                        break
                    try:
                        source = source[step]
                    except (KeyError, IndexError, TypeError):
                        break
                holder[last] = copy.deepcopy(source)
    return value
